// Package estafette sends messages from a function of an Estafette pipeline.
//
// docs/flow-abi.md specifies the calls. A processor also imports the package estafette/function.
package estafette

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// Errors of sends and replies.
var (
	ErrNoSuchTopic = errors.New("no output topic has this index: add it to output.topics")
	ErrTooLong     = errors.New("the message is longer than max_message of its topic")
	ErrNoStream    = errors.New("the function is not fed by a stream: only an input can reply")
)

// Outgoing is a message to the output topic with this index in output.topics.
type Outgoing struct {
	Topic uint32
	Data  []byte
}

//go:wasmimport estafette send_batch
func hostSendBatch(list unsafe.Pointer, count uint32) int32

//go:wasmimport estafette reply
func hostReply(data unsafe.Pointer, length uint32) int32

// entry is the host's layout of a message in a list.
type entry struct{ topic, pointer, length uint32 }

// list is reused by each call, which saves an allocation. A function has one thread.
var list []entry

// Send sends a message. It blocks while the topic is full.
func Send(topic uint32, data []byte) error {
	return SendAll([]Outgoing{{topic, data}})
}

// SendAll sends messages, in order, in one call of the host. If it fails, none was sent.
func SendAll(messages []Outgoing) error {
	list = list[:0]
	for _, message := range messages {
		list = append(list, entry{message.Topic, address(message.Data), uint32(len(message.Data))})
	}
	result := hostSendBatch(unsafe.Pointer(unsafe.SliceData(list)), uint32(len(list)))
	runtime.KeepAlive(messages)
	switch result {
	case 0:
		return nil
	case 1:
		return ErrNoSuchTopic
	case 2:
		return ErrTooLong
	}
	return fmt.Errorf("the host refused a message, result %d", result)
}

// Reply sends a reply on the function's input stream.
func Reply(data []byte) error {
	switch result := hostReply(unsafe.Pointer(unsafe.SliceData(data)), uint32(len(data))); result {
	case 0:
		return nil
	case 1:
		return ErrNoStream
	case 2:
		return ErrTooLong
	default:
		return fmt.Errorf("the host refused the answer, result %d", result)
	}
}

// address returns the address of the bytes in linear memory. They are on the heap, and Go does not
// move them.
func address(data []byte) uint32 {
	return uint32(uintptr(unsafe.Pointer(unsafe.SliceData(data))))
}
