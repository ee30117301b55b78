// Command player plays the recorded cases against a controller of Flagger's API on a real API server, and compares the
// result with the recordings of Flagger. play.sh uses its subcommands:
//
//	player plan [-only REGEX] CASES...                    lists the cases, and which of them can share a controller
//	player isolate COMMAND...                             runs a command in separate namespaces
//	player key FILE                                       writes a key for the tokens of service accounts
//	player run -controller CMD -out DIR CASES...          plays cases that need the same flags
//	player compare -actual DIR [-differences FILE] [-known FILE] CASES...
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	log.SetFlags(log.Ltime)
	if len(os.Args) < 3 {
		die(fmt.Errorf("usage: player plan|isolate|key|run|compare ARGUMENTS"))
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "plan":
		plan(args)
	case "isolate":
		isolate(args)
	case "isolated":
		isolated(args)
	case "key":
		if err := key(args[0]); err != nil {
			die(err)
		}
	case "run":
		run(args)
	case "compare":
		compare(args)
	default:
		die(fmt.Errorf("unknown command %s", os.Args[1]))
	}
}

func load(args []string) []*caseFile {
	dirs, err := findCases(args)
	if err != nil {
		die(err)
	}
	var out []*caseFile
	for _, d := range dirs {
		c, err := loadCase(d)
		if err != nil {
			die(err)
		}
		out = append(out, c)
	}
	return out
}

// plan prints one line per case: the flags of its group, a tab, and its folder. It fails if there are none.
func plan(args []string) {
	fs := flag.NewFlagSet("plan", flag.ExitOnError)
	only := fs.String("only", "", "regular expression: only cases whose name matches")
	_ = fs.Parse(args)
	name, err := regexp.Compile(*only)
	if err != nil {
		die(err)
	}
	planned := 0
	for _, c := range load(fs.Args()) {
		if !name.MatchString(c.name) {
			continue
		}
		planned++
		group := strings.Join(c.Flags, " ")
		if c.Alone {
			group += " #" + c.name
		}
		fmt.Printf("%s\t%s\n", group, c.dir)
	}
	if planned == 0 {
		die(fmt.Errorf("no case in %s has a name that matches %q: nothing is played", strings.Join(fs.Args(), ", "), *only))
	}
}

func run(args []string) {
	fs := flag.NewFlagSet("run", flag.ExitOnError)
	command := fs.String("controller", "", "command line that starts the controller")
	out := fs.String("out", "", "folder for the recordings")
	addr := fs.String("listen", "127.0.0.1:9090", "address of the scripted server of metrics and webhooks")
	logFile := fs.String("controller-log", "controller.log", "")
	parallel := fs.Int("parallel", 80, "number of concurrent cases")
	wait := fs.Int("wait", 90, "maximum seconds for one condition of a case")
	limit := fs.Int("wait-limit", 0, "limit in seconds, also for conditions with a timeout (0: none)")
	_ = fs.Parse(args)
	cases := load(fs.Args())
	if *command == "" || *out == "" || len(cases) == 0 {
		die(fmt.Errorf("-controller, -out and cases are required"))
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		die(err)
	}
	cfg.QPS, cfg.Burst = 500, 1000
	cfg.UserAgent = "case"
	cfg.WarningHandlerWithContext = nil
	cfg.WarningHandler = quiet{}
	rec := &recorder{
		dyn: dynamic.NewForConfigOrDie(cfg), disco: discovery.NewDiscoveryClientForConfigOrDie(cfg),
		tracks: map[string]*track{}, owners: map[string]string{},
	}
	mapper, err := newMapper(rec)
	if err != nil {
		die(err)
	}
	r := &runner{recorder: rec, mapper: mapper, base: "http://" + *addr, waitTimeout: *wait, waitLimit: *limit, out: *out}
	if err := rec.serve(*addr); err != nil {
		die(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := rec.watchAll(ctx); err != nil {
		die(err)
	}
	flags := strings.Join(cases[0].Flags, " ")
	for _, c := range cases {
		if strings.Join(c.Flags, " ") != flags {
			die(fmt.Errorf("cases of one run must require the same flags"))
		}
		for _, s := range c.Simulate {
			if s == "knative" {
				go r.knative(ctx, c.name)
			}
		}
		if !c.reportsOnRoutes() {
			go r.gateway(ctx, c.name)
		}
	}
	ctl := &controller{command: *command, flags: flags, base: "http://" + *addr, logFile: *logFile}
	if err := ctl.start(); err != nil {
		die(err)
	}
	r.controller = ctl
	time.Sleep(3 * time.Second)
	if ctl.ended() {
		fmt.Println("warning: the controller exited immediately, see its log")
	}
	begin := time.Now()
	bad := r.runAll(ctx, cases, *parallel)
	if ctl.ended() {
		fmt.Println("warning: the controller exited during the run, see its log")
	}
	ctl.stop()
	fmt.Printf("%d cases in %v, %d incomplete\n", len(cases), time.Since(begin).Round(time.Second), bad)
}

// A controller is the process under test.
type controller struct {
	command, flags, base, logFile string

	cmd  *exec.Cmd
	done chan struct{}
}

func (c *controller) start() error {
	command := strings.ReplaceAll(c.command, "{prometheus}", c.base)
	if strings.Contains(command, "{flags}") {
		command = strings.ReplaceAll(command, "{flags}", c.flags)
	} else if c.flags != "" {
		command += " " + c.flags
	}
	command = strings.ReplaceAll(command, "${HOOKS}", c.base+"/h")
	f, err := os.OpenFile(c.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command("bash", "-c", "exec "+command)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); _ = f.Close(); close(done) }()
	c.cmd, c.done = cmd, done
	return nil
}

func (c *controller) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// stop terminates the process, and kills it after ten seconds.
func (c *controller) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

type quiet struct{}

func (quiet) HandleWarningHeader(int, string, string) {}
