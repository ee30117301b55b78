// Package build makes the programs of the playground from Go modules and keeps
// them, so that only the first start takes minutes.
//
// It needs the go command and nothing else. It must not know how the programs
// are run.
package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// CacheVariable names the folder for finished programs; default is serin-playground in the user's cache folder.
const CacheVariable = "SERIN_CACHE"

// KubernetesVersion is what the control plane says it is. It is the version in modules/controlplane/go.mod.
const KubernetesVersion = "v1.36.3"

// Builder builds programs and remembers them.
type Builder struct {
	source string
	cache  string
	say    func(string)
}

// New finds the playground's sources, in the working folder or above it, and the cache. say is told, in a sentence
// for people, about everything that takes long; nil keeps quiet.
func New(say func(string)) (*Builder, error) {
	source, err := findSource()
	if err != nil {
		return nil, err
	}
	cache := os.Getenv(CacheVariable)
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find a folder to keep programs: %w: set %s", err, CacheVariable)
		}
		cache = filepath.Join(user, "serin-playground")
	}
	if cache, err = filepath.Abs(cache); err != nil {
		return nil, fmt.Errorf("find the folder %s names: %w", CacheVariable, err)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder for programs: %w", err)
	}
	if say == nil {
		say = func(string) {}
	}
	return &Builder{source: source, cache: cache, say: say}, nil
}

func findSource() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the sources of the playground: %w", err)
	}
	for folder := start; ; folder = filepath.Dir(folder) {
		for _, candidate := range []string{folder, filepath.Join(folder, "playground")} {
			if _, err := os.Stat(filepath.Join(candidate, "modules", "controlplane", "go.mod")); err == nil {
				return candidate, nil
			}
		}
		if folder == filepath.Dir(folder) {
			return "", fmt.Errorf("no folder from %s upwards holds the sources of the playground: start it inside Serin's repository", start)
		}
	}
}

// Repository is the folder of Serin's own sources.
func (b *Builder) Repository() string { return filepath.Dir(b.source) }

// Folder is a folder below the cache for things other than programs.
func (b *Builder) Folder(name string) string { return filepath.Join(b.cache, name) }

// program is one whose sources are a module below modules/.
type program struct {
	name     string
	title    string
	duration string // of the first build on two cores
	args     []string
	env      []string // besides the caller's
}

func controlPlane() program {
	const version = "k8s.io/component-base/version"
	release := strings.SplitN(strings.TrimPrefix(KubernetesVersion, "v"), ".", 3)
	return program{
		name: "controlplane", title: "Kubernetes control plane", duration: "about 4 minutes",
		args: []string{"-ldflags", fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
			version, KubernetesVersion, release[0], release[1]), "."},
	}
}

// ControlPlane returns the program with the subcommands etcd, apiserver, kcm, scheduler and kubectl.
func (b *Builder) ControlPlane(ctx context.Context) (string, error) {
	return b.kept(ctx, controlPlane())
}

// Prometheus returns the Prometheus server. It has no service discovery but files.
func (b *Builder) Prometheus(ctx context.Context) (string, error) {
	return b.kept(ctx, program{
		name: "prometheus", title: "Prometheus", duration: "about 3 minutes",
		args: []string{"-tags", "remove_all_sd", "-ldflags", "-s -w", "github.com/prometheus/prometheus/cmd/prometheus"},
	})
}

// Traefik returns the gateway.
func (b *Builder) Traefik(ctx context.Context) (string, error) {
	return b.kept(ctx, program{
		name: "traefik", title: "Traefik", duration: "about 4 minutes",
		args: []string{"-ldflags", "-s -w", "github.com/traefik/traefik/v3/cmd/traefik"},
	})
}

// IngressNGINX returns ingress-nginx's controller, which needs no library of the machine, and the folder with the
// template and the scripts that it wants to find in /etc/nginx.
func (b *Builder) IngressNGINX(ctx context.Context) (file, etc string, err error) {
	const name, module = "ingress-nginx", "k8s.io/ingress-nginx"
	file, err = b.kept(ctx, program{
		name: name, title: "ingress-nginx", duration: "about 2 minutes", env: []string{"CGO_ENABLED=0"},
		args: []string{"-ldflags", "-s -w", module + "/cmd/nginx"},
	})
	if err != nil {
		return "", "", err
	}
	folder, err := moduleFolder(ctx, filepath.Join(b.source, "modules", name), module)
	return file, filepath.Join(folder, "rootfs", "etc", "nginx"), err
}

// DemoApp returns the demo application, which needs no library of the machine.
func (b *Builder) DemoApp(ctx context.Context) (string, error) {
	return b.Static(ctx, "demo-app", b.source, "./cmd/demo-app")
}

// Serin returns the program under test, built from the repository that the playground is part of.
func (b *Builder) Serin(ctx context.Context) (string, error) {
	return b.Static(ctx, "serin", b.Repository(), "./cmd/serin")
}

// Static builds a package of the module in folder for containers of the playground, which hold no libraries. The go
// command knows whether there is anything to do.
func (b *Builder) Static(ctx context.Context, name, folder, pkg string) (string, error) {
	unlock, err := b.lock(name)
	if err != nil {
		return "", err
	}
	defer unlock()
	return b.compile(ctx, folder, filepath.Join(b.cache, name), []string{"CGO_ENABLED=0"}, pkg)
}

// GatewayCRDs returns the folder with the resource definitions of the Gateway API's standard channel.
func (b *Builder) GatewayCRDs(ctx context.Context) (string, error) {
	module, err := moduleFolder(ctx, filepath.Join(b.source, "modules", "gatewayapi"), "sigs.k8s.io/gateway-api")
	return filepath.Join(module, "config", "crd", "standard"), err
}

// IstioCRDs returns the folder with Istio's resource definitions, which come with its API, on which Serin depends.
func (b *Builder) IstioCRDs(ctx context.Context) (string, error) {
	module, err := moduleFolder(ctx, b.Repository(), "istio.io/api")
	return filepath.Join(module, "kubernetes"), err
}

// TraefikCRDs returns the file with the resource definitions of Traefik's own API.
func (b *Builder) TraefikCRDs(ctx context.Context) (string, error) {
	module, err := moduleFolder(ctx, filepath.Join(b.source, "modules", "traefik"), "github.com/traefik/traefik/v3")
	return filepath.Join(module, "docs", "content", "reference", "dynamic-configuration", "kubernetes-crd-definition-v1.yml"), err
}

// RouteCRDs returns the files with the resource definitions of providers of traffic that cannot run here. Those of Contour
// come out of its module; for kinds that no module has, there are those of Serin's own tests.
func (b *Builder) RouteCRDs(ctx context.Context) ([]string, error) {
	providers := filepath.Join(b.Repository(), "internal", "traffic")
	contour, err := moduleFolder(ctx, filepath.Join(providers, "traffictest", "definitions"), "github.com/projectcontour/contour")
	return []string{
		filepath.Join(contour, "examples", "contour", "01-crds.yaml"),
		filepath.Join(providers, "alb", "testdata", "definitions.yaml"),
		filepath.Join(providers, "ambassador", "testdata", "definitions.yaml"),
		filepath.Join(providers, "apisix", "testdata", "definitions.yaml"),
		filepath.Join(providers, "appmesh", "testdata", "crds", "v1beta2.yaml"),
		filepath.Join(providers, "gloo", "testdata", "definitions.yaml"),
		filepath.Join(providers, "smi", "testdata", "crds", "trafficsplits.yaml"),
	}, err
}

// moduleFolder is where Go keeps a module, in the version that the module in a folder asks for.
func moduleFolder(ctx context.Context, folder, module string) (string, error) {
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	command.Dir = folder
	command.Env = environment()
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", module, explain(err))
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(output, &found); err != nil {
		return "", fmt.Errorf("fetch %s: %w", module, err)
	}
	return found.Dir, nil
}

// kept builds a program once for each content of its module.
func (b *Builder) kept(ctx context.Context, p program) (string, error) {
	folder := filepath.Join(b.source, "modules", p.name)
	sum, err := fingerprint(folder, slices.Concat(p.env, p.args))
	if err != nil {
		return "", fmt.Errorf("read the module of %s: %w", p.title, err)
	}
	file := filepath.Join(b.cache, p.name+"-"+sum)
	unlock, err := b.lock(p.name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	b.say(fmt.Sprintf("building %s (first time: %s on two cores) ...", p.title, p.duration))
	stop := b.remind(p.title)
	defer stop()
	return b.compile(ctx, folder, file, p.env, p.args...)
}

// remind says from time to time that a build goes on, until the returned function is called.
func (b *Builder) remind(title string) (stop func()) {
	const every = 30 * time.Second
	clk := clock.RealClock{}
	began, ticker := clk.Now(), clk.NewTicker(every)
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stopped:
				return
			case <-ticker.C():
				b.say(fmt.Sprintf("  still building %s, since %s", title, clk.Since(began).Round(time.Second)))
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(stopped)
		<-done
	}
}

// fingerprint names everything that decides what comes out, but for the version of Go: a program built by another one
// does the same.
func fingerprint(folder string, args []string) (string, error) {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q\n", args)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(hash, "%s %d\n%s", entry.Name(), len(text), text)
		return nil
	})
	return fmt.Sprintf("%x", hash.Sum(nil))[:12], err
}

// compile writes beside file and renames, so that nobody ever starts half a program, and so that one that runs is not
// touched.
func (b *Builder) compile(ctx context.Context, folder, file string, env []string, args ...string) (string, error) {
	fresh := file + ".new"
	command := exec.CommandContext(ctx, "go", append([]string{"build", "-buildvcs=false", "-o", fresh}, args...)...)
	command.Dir = folder
	command.Env = append(environment(), env...)
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", filepath.Base(file), explain(err), bytes.TrimSpace(output))
	}
	if err := os.Rename(fresh, file); err != nil {
		return "", fmt.Errorf("keep %s: %w", filepath.Base(file), err)
	}
	return file, nil
}

// environment is the caller's without what would make other programs of the same sources.
func environment() []string {
	return append(os.Environ(), "GOFLAGS=", "GOWORK=off")
}

func explain(err error) error {
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w: install Go (https://go.dev/dl) and put its bin folder into PATH", err)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}

// lock keeps two playgrounds that start at the same time from building the same program twice.
func (b *Builder) lock(name string) (func(), error) {
	file, err := os.OpenFile(filepath.Join(b.cache, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s in the folder for programs: %w", name, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s in the folder for programs: %w", name, err)
	}
	return func() { file.Close() }, nil
}
