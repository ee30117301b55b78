// Package fidelity tests that the API server of the simulator behaves as a real
// one: it sends the same random requests to both and compares the responses.
//
// It knows both servers and the kinds that Serin uses. It must not know other
// packages of Serin, nor how the simulator uses its server.
package fidelity
