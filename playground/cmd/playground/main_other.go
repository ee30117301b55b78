//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "the playground runs its pods in Linux namespaces: run it on Linux, or in a Linux virtual machine")
	os.Exit(1)
}
