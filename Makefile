# A target consists of one or two lines that call Go or a script in hack/. ARGS contains its arguments.
SHELL := bash
.DEFAULT_GOAL := help
ARGS ?=

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/serin
	go build -o bin/serin ./cmd/serin

.PHONY: image
image: ## Build and push the image, for amd64 and arm64, with ko (KO_DOCKER_REPO=registry/serin)
	@hack/image.sh $(ARGS)

.PHONY: image-loadtester
image-loadtester: ## Build and push the load tester image, which contains a shell (KO_DOCKER_REPO=registry/serin-loadtester)
	@hack/image.sh --loadtester $(ARGS)

.PHONY: release
release: ## Build binaries, image, SBOMs, chart and krew manifest of the commit into dist/ (VERSION=v0.1.0)
	@hack/release.sh $(VERSION)

.PHONY: release-bundle
release-bundle: ## Build the bundle of the playground for this platform into dist/, after make release
	@hack/bundle.sh

.PHONY: release-test
release-test: ## Build a release twice and test it: contents, signatures, installation (VERSION=v0.1.0 ARGS='-dist FOLDER')
	cd hack/release && go test -count=1 -timeout 60m . -args $(if $(VERSION),-version $(VERSION)) $(ARGS)

.PHONY: demo
demo: ## Release good, failing and slow versions on live traffic (ARGS=--keep, ARGS=--json)
	@hack/playground.sh
	@bin/playground demo $(ARGS)

.PHONY: demo-cold
demo-cold: ## Measure the first make demo of a machine, with empty caches
	@hack/cold-demo.sh

.PHONY: test-fast
test-fast: ## Run the tests that need no cluster: state machines, contract tests, golden files
	go test $(ARGS) ./api/... ./cmd/... ./config/... ./internal/...

.PHONY: fuzz
fuzz: ## Test every parser of external data with generated input (ARGS=5m for each target)
	@hack/fuzz.sh $(ARGS)

.PHONY: test
test: ## Run all tests, on a separate cluster where required
	@hack/test.sh

.PHONY: conformance
conformance: ## Replay the recorded cases of Flagger on a real API server (ARGS='--only istio')
	@hack/conformance.sh $(ARGS)

.PHONY: argo-suite
argo-suite: ## Run a test suite of Argo Rollouts (ARGS='--suite e2e.test --folder test/e2e --run TestCanarySuite')
	go build -C playground -o ../bin/argosuite ./cmd/argosuite
	@bin/argosuite $(ARGS)

.PHONY: argo-swap
argo-swap: ## Swap Serin and Argo Rollouts during releases (CONTROLLER=rollouts-controller)
	cd playground/e2e && go test -timeout 40m -run TestSwaps -count=1 . -args -argo $(abspath $(CONTROLLER)) $(ARGS)

.PHONY: sim
sim: ## Execute simulation runs (RUNS=20000 SEED=1 APIS=rollout ARGS=-trace)
	@go build -o bin/sim ./test/sim/run
	@bin/sim $(if $(APIS),-apis $(APIS)) $(if $(RUNS),-runs $(RUNS)) $(if $(SEED),-seed $(SEED)) $(ARGS)

.PHONY: mutation-test
mutation-test: ## Verify that the simulator detects deliberate defects (ARGS='-only I5')
	@go run ./test/sim/mutation/run $(ARGS)

.PHONY: chaos
chaos: ## Inject faults during releases on a real API server (RELEASES=50 DURATION=1h SEED=1 ARGS='-faults kill')
	go build -C playground -o ../bin/chaos ./chaos
	@bin/chaos $(if $(RELEASES),-releases $(RELEASES)) $(if $(DURATION),-duration $(DURATION)) $(if $(SEED),-seed $(SEED)) $(ARGS)

.PHONY: bench
bench: ## Measure the cost of a hundred releases, into bench.json (ARGS='-releases 10')
	go build -C playground -o ../bin/bench ./bench
	@bin/bench $(ARGS)

.PHONY: bench-scale
bench-scale: ## Measure 100, 1,000 and 10,000 idle releases in a large cluster, into bench-scale.json (hours; ARGS='-apis canary')
	go build -C playground -o ../bin/bench ./bench
	@bin/bench -scale 100,1000,10000 -interval 10s $(ARGS)

.PHONY: bench-days
bench-days: ## Measure the memory of a process after each of thirty days of releases, into bench-days.json (ARGS=-restarts)
	go build -C playground -o ../bin/bench ./bench
	@bin/bench -days 30 -releases 1000 -steps 2 -interval 2s $(ARGS)

.PHONY: bench-live
bench-live: ## Measure the first frame of serin demo, and when the dashboard shows a change (in a cluster of the tests, with Chromium)
	@hack/browser.sh && cd playground && go test ./e2e -count=1 -v -parallel 1 \
		-run '^(TestDemoPromotesAVersionRollsOneBackAndIsDeleted|TestDashboardShowsAndControlsAReleaseInABrowser)$$' $(ARGS) | grep -E 'measured: |^(---|ok|FAIL)'

.PHONY: screenshots
screenshots: ## Take the screenshots of the dashboard in docs/images, in Chromium
	@hack/screenshots.sh

.PHONY: lint
lint: ## Run golangci-lint over the code and Vale over documents and comments (ARGS=--fix repairs and formats)
	@hack/lint.sh $(ARGS)

.PHONY: generate
generate: ## Write generated code and the CustomResourceDefinitions
	hack/generate.sh

.PHONY: clean
clean: ## Remove build output; the playground stores its programs in the user's cache directory
	rm -rf bin dist bench.json bench-scale.json bench-days.json
