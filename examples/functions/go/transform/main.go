// Command transform passes each message on to output topic 0 in upper case.
package main

import "functions/estafette/function"

func init() { function.Handle(upperCase) }

func upperCase(message []byte, outputs *function.Outputs) {
	for index, letter := range message {
		if 'a' <= letter && letter <= 'z' {
			message[index] = letter - 'a' + 'A'
		}
	}
	// It is changed where it lies, so there is nothing to copy.
	outputs.Send(0, message)
}

func main() {}
