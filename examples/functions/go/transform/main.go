// Command transform converts each message to upper case, and sends it to output topic 0.
package main

import "functions/estafette/function"

func init() { function.Handle(upperCase) }

func upperCase(message []byte, outputs *function.Outputs) {
	for index, letter := range message {
		if 'a' <= letter && letter <= 'z' {
			message[index] = letter - 'a' + 'A'
		}
	}
	// The message was changed in place, so no copy is needed.
	outputs.Send(0, message)
}

func main() {}
