// Modules that ship definitions of resources, for the tests of the providers of traffic. Serin links none of them.
module github.com/serin-dev/serin/internal/traffic/traffictest/definitions

go 1.26

require (
	github.com/projectcontour/contour v1.33.8
	github.com/traefik/traefik/v3 v3.6.12
	knative.dev/serving v0.51.0
)
