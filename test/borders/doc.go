// Package borders tests properties that no single package can test: who may import whom, the contents of package comments,
// and that documentation and code use the same names.
//
// It reads sources and the list of dependencies. It must not run anything of Serin, and nothing may import it.
package borders
