// Package fidelity tests that the API server of the simulator answers as a
// real one does: both are asked the same, at random, and compared.
//
// It knows both servers and the kinds that Serin works with. It must not know
// Serin's packages otherwise, nor what the simulator does with the server.
package fidelity
