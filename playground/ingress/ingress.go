//go:build linux

// Package ingress describes an ingress controller for the playground: ingress-nginx, with Debian's nginx.
//
// It knows which files the controller expects in its image, and adapts them to Debian's nginx. It must not know Ingresses,
// releases or applications.
package ingress

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Names to which Ingresses and tests refer.
const (
	ClassName = "nginx"
	Namespace = "ingress-nginx"
	Pod       = "controller"
	Port      = 80
	// Image is the name under which the caller must provide the controller's program.
	Image = "serin.dev/ingress-nginx"
)

// Files are the parts of the controller's filesystem.
type Files struct {
	// Debian is the root of a filesystem with nginx and its libraries.
	Debian string
	// Etc is mounted at /etc: a folder of this controller only, which Write fills.
	Etc string
	// Kubeconfig contains credentials for the API server; its address is ignored.
	Kubeconfig string
}

// libraries are Lua libraries of the scripts that Debian does not contain, or contains under another name. The missing ones
// are for hashing, certificates of external names and rate limits, which are not used. The library that selects an endpoint
// is our own.
var libraries = map[string]string{
	"resty/cookie.lua":          `return require("nginx.cookie")`,
	"resty/dns/resolver.lua":    `return require("nginx.dns.resolver")`,
	"resty/chash.lua":           `return require("absent")`,
	"resty/global_throttle.lua": `return require("absent")`,
	"resty/http.lua":            `return require("absent")`,
	"resty/ipmatcher.lua":       `return require("absent")`,
	"resty/lock.lua":            `return require("absent")`,
}

//go:embed lua
var ownFiles embed.FS

// streamBlock matches the block of the template for TCP and UDP services. It uses scripts for which Debian has no module.
var streamBlock = regexp.MustCompile(`(?ms)^stream \{$.*?^\}$`)

// Write fills Etc with ingress-nginx's template and scripts, which are in the folder source, and with the files that they
// require but Debian does not contain.
func (f Files) Write(source string) error {
	nginx := filepath.Join(f.Etc, "nginx")
	if err := os.CopyFS(nginx, os.DirFS(source)); err != nil {
		return fmt.Errorf("copy ingress-nginx's files: %w", err)
	}
	template := filepath.Join(nginx, "template", "nginx.tmpl")
	text, err := os.ReadFile(template)
	if err != nil {
		return fmt.Errorf("read ingress-nginx's template: %w", err)
	}
	if found := len(streamBlock.FindAllIndex(text, -1)); found != 1 {
		return fmt.Errorf("ingress-nginx's template has %d blocks for streams, want one: adapt package ingress to this version of ingress-nginx", found)
	}
	mimeTypes, err := os.ReadFile(filepath.Join(f.Debian, "etc", "nginx", "mime.types"))
	if err != nil {
		return fmt.Errorf("read nginx's MIME types: %w", err)
	}
	files := map[string]string{
		"nginx/template/nginx.tmpl": string(streamBlock.ReplaceAll(text, nil)),
		"nginx/mime.types":          string(mimeTypes),
		// The user of nginx's workers. The user namespace of an unprivileged user contains only one user.
		"passwd": "nobody:x:0:0::/:/none\n",
		"group":  "nogroup:x:0:\n",
	}
	for from, to := range map[string]string{"absent.lua": "absent.lua", "roundrobin.lua": "resty/roundrobin.lua"} {
		text, err := ownFiles.ReadFile("lua/" + from)
		if err != nil {
			return fmt.Errorf("read %s: %w", from, err)
		}
		files["nginx/lua/"+to] = string(text)
	}
	for name, text := range libraries {
		files["nginx/lua/"+name] = text
	}
	if err := os.MkdirAll(filepath.Join(f.Etc, "ingress-controller", "telemetry"), 0o755); err != nil {
		return fmt.Errorf("write ingress-nginx's files: %w", err)
	}
	for name, text := range files {
		target := filepath.Join(f.Etc, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return fmt.Errorf("write ingress-nginx's files: %w", err)
		}
		if err := os.WriteFile(target, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write ingress-nginx's files: %w", err)
		}
	}
	return nil
}

// Manifest returns the manifests of the controller: one pod, which is ready when nginx serves. It has the permissions of the
// kubeconfig.
func (f Files) Manifest(apiServer string) string {
	return fmt.Sprintf(manifest, Namespace, ClassName, Pod, Image, f.Debian, f.Etc, f.Kubeconfig, apiServer, Port)
}

// manifest loads, with main-snippet, the modules that Debian packages separately. The server in http-snippet listens on the
// port to which the controller sends the configuration of its streams, of which there are none.
//
// --sync-rate-limit is below one change a second, because the controller's script distinguishes changes by whole seconds. It
// would ignore the second of two changes in one second, such as a weight right after the pods, until the next change.
const manifest = `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: %[2]s}
spec: {controller: k8s.io/ingress-nginx}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: controller, namespace: %[1]s}
data:
  main-snippet: |
    load_module /usr/lib/nginx/modules/ndk_http_module.so;
    load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
    load_module /usr/lib/nginx/modules/ngx_http_headers_more_filter_module.so;
  http-snippet: server { listen 127.0.0.1:10247; }
  use-http2: "false"
  disable-access-log: "true"
  error-log-path: /dev/stderr
  worker-processes: "1"
---
apiVersion: v1
kind: Pod
metadata:
  name: %[3]s
  namespace: %[1]s
  annotations: {prometheus.io/scrape: "true", prometheus.io/port: "10254"}
spec:
  containers:
  - name: controller
    image: %[4]s
    args:
    - --kubeconfig=/kubeconfig
    - --apiserver-host=https://%[8]s
    - --configmap=$(POD_NAMESPACE)/controller
    - --http-port=%[9]d
    - --update-status=false
    - --disable-leader-election
    - --sync-rate-limit=0.9
    env:
    - {name: PATH, value: /usr/sbin}
    - {name: NGINX_BINARY, value: /usr/sbin/nginx}
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    readinessProbe: {httpGet: {path: /healthz, port: 10254}, periodSeconds: 1}
    volumeMounts:
    - {name: debian, mountPath: /usr, subPath: usr, readOnly: true}
    - {name: debian, mountPath: /lib, subPath: lib, readOnly: true}
    - {name: debian, mountPath: /lib64, subPath: lib64, readOnly: true}
    - {name: etc, mountPath: /etc}
    - {name: kubeconfig, mountPath: /kubeconfig, readOnly: true}
    - {name: work, mountPath: /tmp/nginx}
    - {name: work, mountPath: /var/lib/nginx}
    - {name: nothing, mountPath: /sys/fs/cgroup}
  volumes:
  - {name: debian, hostPath: {path: %[5]s}}
  - {name: etc, hostPath: {path: %[6]s}}
  - {name: kubeconfig, hostPath: {path: %[7]s}}
  - {name: work, emptyDir: {}}
  - {name: nothing, emptyDir: {}}
`
