// Command controlplane is a Kubernetes control plane in one file: etcd, API
// server, controller manager and scheduler, and kubectl, as subcommands.
//
// It must not know the playground: flags configure everything, so that other
// tools can run it too.
package main

import (
	"fmt"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

const usage = "usage: controlplane etcd DIR | apiserver | kcm | scheduler | kubectl"

func main() {
	if len(os.Args) < 2 {
		fail(usage)
	}
	name := os.Args[1]
	// The commands of Kubernetes read os.Args and expect their own name in the first element.
	os.Args = os.Args[1:]
	switch name {
	case "etcd":
		if len(os.Args) != 2 {
			fail(usage)
		}
		fail(serveEtcd(os.Args[1]).Error())
	case "apiserver":
		run(apiserver.NewAPIServerCommand())
	case "kcm":
		run(controllermanager.NewControllerManagerCommand())
	case "scheduler":
		run(scheduler.NewSchedulerCommand())
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	default:
		fail(fmt.Sprintf("unknown command %q\n%s", name, usage))
	}
}

func run(command *cobra.Command) { os.Exit(cli.Run(command)) }

func fail(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(2)
}

// serveEtcd runs a single member with its data in dir and returns its error. It
// does not sync to disk, because a cluster does not survive a restart of the
// machine.
func serveEtcd(dir string) error {
	client := []url.URL{{Scheme: "http", Host: "127.0.0.1:2379"}}
	peer := []url.URL{{Scheme: "http", Host: "127.0.0.1:2380"}}
	config := embed.NewConfig()
	config.Dir = dir
	config.LogLevel = "warn"
	config.UnsafeNoFsync = true
	config.ListenClientUrls, config.AdvertiseClientUrls = client, client
	config.ListenPeerUrls, config.AdvertisePeerUrls = peer, peer
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("start etcd in %s: %w", dir, err)
	}
	return <-server.Err()
}
