// Command receive_checksum checks the checksum of each message and counts them; it panics at a wrong one.
package main

import (
	"fmt"

	"functions/estafette/function"
	"functions/message"
)

func init() {
	var counter message.Counter
	function.Handle(func(data []byte, _ *function.Outputs) {
		if !message.HasChecksum(data) {
			panic(fmt.Sprintf("Message %d has a wrong checksum", counter.Messages+1))
		}
		counter.Count(data)
	})
}

func main() {}
