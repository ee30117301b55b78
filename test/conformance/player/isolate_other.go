//go:build !linux

package main

import "errors"

var errNotLinux = errors.New("labs run on Linux only")

func isolate([]string) { die(errNotLinux) }

func isolated([]string) { die(errNotLinux) }
