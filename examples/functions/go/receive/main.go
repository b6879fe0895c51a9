// Command receive counts messages. It prints the count every 100,000 messages, and the count and
// the time at the last message.
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
