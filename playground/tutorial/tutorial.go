// Package tutorial parses the tutorials of the documentation into the commands that a reader would type, and compares their
// output with the output that the page shows.
//
// It knows the form of a page. It must not know clusters, releases, or how a command is run.
package tutorial

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Block is one fenced block of commands.
type Block struct {
	// Line is the number of the line of its first fence, from 1.
	Line int
	// Directive is the text of the comment `<!-- test: TEXT -->` in front of the block: how a test runs it differently from a
	// reader. Empty for a block that a test runs as it is.
	Directive string
	Commands  []Command
}

// Command is one command, or the script of a block without prompts.
type Command struct {
	// Line is the number of its first line, from 1.
	Line int
	// Script is a script for bash.
	Script string
	// Output is the output on the page, nil if the page shows none. See CheckOutput.
	Output []string
}

// languages are the languages of fenced blocks. Manifests are files of docs/examples, which other tests apply.
var languages = []string{"sh", "console", "yaml"}

var directive = regexp.MustCompile(`^<!-- test: (.*) -->$`)

const (
	fence  = "```"
	prompt = "$ "
	// anything stands for any text on a line; alone on a line, for any number of lines.
	anything = "…"
)

// Parse returns the blocks of commands of a page in order. A block in a language that is not known is an error, because
// readers could not distinguish it from the tested blocks, and so is a directive without a block.
func Parse(page string) ([]Block, error) {
	var blocks []Block
	lines := strings.Split(page, "\n")
	pending := ""
	for i := 0; i < len(lines); i++ {
		if found := directive.FindStringSubmatch(lines[i]); found != nil {
			pending = found[1]
			continue
		}
		language, isFence := strings.CutPrefix(lines[i], fence)
		if !isFence {
			if pending != "" {
				return nil, fmt.Errorf("line %d: no block follows the directive %q: put the comment on the line before the fence", i+1, pending)
			}
			continue
		}
		length := slices.Index(lines[i+1:], fence)
		switch {
		case length < 0:
			return nil, fmt.Errorf("line %d: the block has no end", i+1)
		case !slices.Contains(languages, language):
			return nil, fmt.Errorf("line %d: a block in the language %q, want one of %q", i+1, language, languages)
		case language != "yaml":
			commands, err := parseCommands(language, i+2, lines[i+1:i+1+length])
			if err != nil {
				return nil, err
			}
			blocks = append(blocks, Block{Line: i + 1, Directive: pending, Commands: commands})
		case pending != "":
			return nil, fmt.Errorf("line %d: a manifest has the directive %q, which is for commands", i+1, pending)
		}
		pending = ""
		i += length + 1
	}
	return blocks, nil
}

// parseCommands returns the commands of a block whose first line has the number first. A block in sh is one script without
// output; in console, a prompt begins a command, and a backslash at the end of a line continues it.
func parseCommands(language string, first int, lines []string) ([]Command, error) {
	if language == "sh" {
		return []Command{{Line: first, Script: strings.Join(lines, "\n")}}, nil
	}
	var commands []Command
	for i, line := range lines {
		script, isCommand := strings.CutPrefix(line, prompt)
		switch {
		case isCommand:
			commands = append(commands, Command{Line: first + i, Script: script, Output: []string{}})
		case len(commands) == 0:
			return nil, fmt.Errorf("line %d: a block in console begins with %q", first+i, prompt)
		default:
			last := &commands[len(commands)-1]
			if len(last.Output) == 0 && strings.HasSuffix(last.Script, `\`) {
				last.Script += "\n" + line
			} else {
				last.Output = append(last.Output, line)
			}
		}
	}
	return commands, nil
}

var spaces = regexp.MustCompile(`[ \t]+`)

// CheckOutput returns an error unless the output has the lines on the page. The width of columns does not count, and … on the
// page stands for any text on a line; alone on a line, for any number of lines.
func (c Command) CheckOutput(output string) error {
	if c.Output == nil {
		return nil
	}
	var pattern strings.Builder
	for _, line := range c.Output {
		if strings.TrimSpace(line) == anything {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		parts := strings.Split(normalize(line), anything)
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern.WriteString(strings.Join(parts, ".*") + `\n`)
	}
	var got []string
	for line := range strings.SplitSeq(strings.TrimRight(output, " \t\n"), "\n") {
		got = append(got, normalize(line))
	}
	text := strings.Join(got, "\n") + "\n"
	if text == "\n" {
		text = ""
	}
	if !regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(text) {
		return fmt.Errorf("the page shows:\n%s\nthe command printed:\n%s", strings.Join(c.Output, "\n"), output)
	}
	return nil
}

// normalize reduces the spaces of columns to one.
func normalize(line string) string { return strings.TrimRight(spaces.ReplaceAllString(line, " "), " ") }
