package main

import (
	"strconv"
	"strings"
	"time"
)

// process is the simulated process of a container's command, as far as this node can interpret it.
type process struct {
	startError  string        // not empty: the command cannot be started at all
	forever     bool          // runs until it is stopped
	runFor      time.Duration // else: exits after this time ...
	exitCode    int32         // ... with this code
	ignoresTerm bool          // PID 1 without a handler: only SIGKILL ends it
}

// plan interprets a container's command. The entry point is used if command is empty.
func plan(image string, command, args []string) process {
	argv := append(append([]string{}, command...), args...)
	if len(command) == 0 {
		// Without a command, the entry point of the image runs. An image with only a shell exits at once; any other image is
		// assumed to be a server.
		if isShellImage(image) {
			if len(args) == 0 {
				return process{}
			}
		} else {
			return process{forever: true}
		}
	}
	name := argv[0]
	if i := strings.LastIndex(name, "/"); i >= 0 && (strings.HasPrefix(name, "/bin/") || strings.HasPrefix(name, "/usr/bin/")) {
		name = name[i+1:]
	}
	switch name {
	case "sleep", "true", "false", "echo", ":":
		if name == ":" {
			return process{startError: notFound(argv[0])}
		}
		r := &run{}
		r.simple(append([]string{name}, argv[1:]...))
		return process{forever: r.forever, runFor: r.elapsed, exitCode: r.code, ignoresTerm: true}
	case "sh", "bash", "ash":
		script, errexit, ok := shellScript(argv[1:])
		if !ok {
			return process{}
		}
		r := &run{errexit: errexit}
		r.script(script)
		return process{forever: r.forever, runFor: r.elapsed, exitCode: r.code, ignoresTerm: true}
	case "nginx":
		return process{forever: true}
	}
	return process{startError: notFound(argv[0])}
}

func notFound(name string) string {
	return `failed to create containerd task: exec: "` + name + `": executable file not found in $PATH`
}

func isShellImage(image string) bool {
	base := image[strings.LastIndex(image, "/")+1:]
	base, _, _ = strings.Cut(base, ":")
	return base == "alpine" || base == "busybox" || base == "bash"
}

// shellScript finds the -c script among a shell's arguments.
func shellScript(args []string) (script string, errexit, ok bool) {
	c := false
	for _, a := range args {
		switch {
		case !c && strings.HasPrefix(a, "-"):
			if strings.Contains(a, "e") {
				errexit = true
			}
			if strings.Contains(a, "c") {
				c = true
			}
		case c && strings.HasPrefix(a, "-") && !strings.Contains(a, " "):
			if strings.Contains(a, "e") {
				errexit = true
			}
		case c:
			return a, errexit, true
		}
	}
	return "", errexit, false
}

// run evaluates lists of simple commands joined by newline, ;, && and ||.
type run struct {
	errexit bool
	elapsed time.Duration
	forever bool
	code    int32
	done    bool
}

func (r *run) script(s string) {
	op := ";"
	for _, part := range splitList(s) {
		words := splitWords(part.text)
		skip := (op == "&&" && r.code != 0) || (op == "||" && r.code == 0)
		if len(words) > 0 && !skip {
			r.simple(words)
			if r.done || r.forever {
				return
			}
			if r.errexit && r.code != 0 && part.op != "&&" && part.op != "||" {
				return
			}
		}
		if len(words) > 0 || part.op != ";" {
			op = part.op
		}
	}
}

func (r *run) simple(words []string) {
	r.code = 0
	switch words[0] {
	case "sleep":
		total := time.Duration(0)
		if len(words) == 1 {
			r.code = 1
			return
		}
		for _, w := range words[1:] {
			d, forever, ok := sleepTime(w)
			if !ok {
				r.code = 1
				return
			}
			if forever {
				r.forever = true
				return
			}
			total += d
		}
		r.elapsed += total
	case "exit":
		if len(words) > 1 {
			n, err := strconv.Atoi(words[1])
			if err != nil {
				n = 2
			}
			r.code = int32(n & 0xff)
		}
		r.done = true
	case "set":
		if len(words) > 1 && strings.HasPrefix(words[1], "-") && strings.Contains(words[1], "e") {
			r.errexit = true
		}
	case "false":
		r.code = 1
	case "true", ":", "echo", "printf", "date", "env":
	default:
		r.code = 127
	}
}

func sleepTime(w string) (d time.Duration, forever, ok bool) {
	if w == "infinity" || w == "inf" {
		return 0, true, true
	}
	unit := time.Second
	if n := len(w); n > 0 {
		switch w[n-1] {
		case 's':
			w = w[:n-1]
		case 'm':
			unit, w = time.Minute, w[:n-1]
		case 'h':
			unit, w = time.Hour, w[:n-1]
		case 'd':
			unit, w = 24*time.Hour, w[:n-1]
		}
	}
	f, err := strconv.ParseFloat(w, 64)
	if err != nil || f < 0 {
		return 0, false, false
	}
	return time.Duration(f * float64(unit)), false, true
}

type listPart struct{ text, op string }

func splitList(s string) []listPart {
	var out []listPart
	var quote byte
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == ';' || c == '\n':
			out = append(out, listPart{s[start:i], ";"})
			start = i + 1
		case (c == '&' || c == '|') && i+1 < len(s) && s[i+1] == c:
			out = append(out, listPart{s[start:i], s[i : i+2]})
			start = i + 2
			i++
		}
	}
	return append(out, listPart{s[start:], ";"})
}

func splitWords(s string) []string {
	var out []string
	var cur strings.Builder
	var quote rune
	in := false
	for _, c := range s {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				cur.WriteRune(c)
			}
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == ' ' || c == '\t':
			if in {
				out = append(out, cur.String())
				cur.Reset()
				in = false
			}
		case c == '#' && !in:
			return out
		default:
			cur.WriteRune(c)
			in = true
		}
	}
	if in {
		out = append(out, cur.String())
	}
	return out
}
