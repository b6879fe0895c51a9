// Command receive_checksum checks and counts messages. It panics at a wrong checksum.
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
