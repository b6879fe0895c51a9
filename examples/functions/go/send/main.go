// Command send sends N messages of one size to output topic 0, then a last one.
//
// Arguments: the number of messages and the size of each in bytes, as ["1000000", "1000"].
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"time"

	"functions/estafette"
	"functions/message"
)

// The maximum per call, unless a single message is longer.
const (
	bytesPerCall    = 256 * 1024
	messagesPerCall = 512
)

func main() {
	// The first argument is os.Args[0], as there is no program name before it.
	messages, size, ok := arguments(os.Args)
	if !ok {
		fail("args must be two numbers from 1: the messages and the bytes of each")
	}
	start := time.Now()
	if err := send(messages, size); err != nil {
		fail(err.Error())
	}
	messages++
	ms := uint64(time.Since(start).Milliseconds())
	fmt.Printf("Sent %d messages in %d ms\n", messages, ms)
	fmt.Printf("Message size %d speed %d MiB/s\n", size, messages*size*1000/max(ms, 1)/1024/1024)
}

func arguments(args []string) (messages, size uint64, ok bool) {
	if len(args) != 2 {
		return 0, 0, false
	}
	messages, _ = strconv.ParseUint(args[0], 10, 64)
	size, _ = strconv.ParseUint(args[1], 10, 31)
	return messages, size, messages > 0 && size > 0
}

// Sends the marked messages and a last one.
func send(messages, size uint64) error {
	data := random(size)
	message.SetMark(data, message.Mark)
	list := make([]estafette.Outgoing, min(max(bytesPerCall/size, 1), messagesPerCall))
	for index := range list {
		list[index].Data = data
	}
	for messages > 0 {
		list = list[:min(messages, uint64(len(list)))]
		if err := estafette.SendAll(list); err != nil {
			return err
		}
		messages -= uint64(len(list))
	}
	message.SetMark(data, message.LastMark)
	return estafette.Send(0, data)
}

// Random bytes: xorshift, seeded by the clock.
func random(size uint64) []byte {
	state := uint64(time.Now().UnixNano()) | 1
	data := make([]byte, 0, size+8)
	for uint64(len(data)) < size {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		data = binary.LittleEndian.AppendUint64(data, state)
	}
	return data[:size]
}

func fail(reason string) {
	fmt.Fprintln(os.Stderr, "send:", reason)
	os.Exit(1)
}
