// Package borders holds what no single package can: who may import whom, what every package says about itself, and that
// documents and code name the same things.
//
// It reads sources and the list of dependencies. It must not run anything of Serin, and nothing may import it.
package borders
