// Package release tests what hack/release.sh builds and hack/publish.sh publishes, with the tools of users: make release-test.
//
// It has a module of its own, so that the modules of Serin do not depend on what only releases need. It must not know how
// the scripts work.
package release
