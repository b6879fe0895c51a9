// Command receive counts messages; it prints the count each 100,000, and count and time at the last one.
package main

import (
	"functions/estafette/function"
	"functions/message"
)

func init() {
	var counter message.Counter
	function.Handle(func(message []byte, _ *function.Outputs) { counter.Count(message) })
}

func main() {}
