// Package function delivers messages to a function of an Estafette pipeline.
//
// A function registers its handler of messages in an init function:
//
//	func init() {
//		function.Handle(func(message []byte, outputs *function.Outputs) { outputs.Send(0, message) })
//	}
package function

import (
	"encoding/binary"
	"unsafe"

	"functions/estafette"
)

const (
	header      = 8
	maxGathered = 1024
)

// Outputs collects the messages that are sent while a batch is handled, to send them in one call.
type Outputs struct{ gathered []estafette.Outgoing }

// Send sends a message, together with the others of its batch. Its bytes must not change until the
// batch has been handled. Send or a later call panics if the host refuses the message.
func (outputs *Outputs) Send(topic uint32, data []byte) {
	outputs.gathered = append(outputs.gathered, estafette.Outgoing{Topic: topic, Data: data})
	if len(outputs.gathered) == maxGathered {
		outputs.Flush()
	}
}

// Flush sends all collected messages, before the end of the batch.
func (outputs *Outputs) Flush() {
	if len(outputs.gathered) == 0 {
		return
	}
	if err := estafette.SendAll(outputs.gathered); err != nil {
		panic(err)
	}
	outputs.gathered = outputs.gathered[:0]
}

var (
	handler func(message []byte, outputs *Outputs)
	outputs Outputs
	buffer  []uint64
)

// Handle registers the handler of messages. A handler may change the bytes of a message, which are
// valid until the end of the batch.
func Handle(handle func(message []byte, outputs *Outputs)) { handler = handle }

// hostBuffer returns the address of a buffer of at least capacity bytes.
//
//go:wasmexport estafette_buffer
func hostBuffer(capacity uint32) unsafe.Pointer {
	buffer = make([]uint64, capacity/8+1)
	return unsafe.Pointer(unsafe.SliceData(buffer))
}

// hostBatch passes count records to the handler: u32 length, u32 reserved, payload, padding to a
// multiple of 8.
//
//go:wasmexport estafette_batch
func hostBatch(pointer unsafe.Pointer, length, count uint32) {
	batch := unsafe.Slice((*byte)(pointer), length)
	for ; count > 0; count-- {
		end := header + binary.LittleEndian.Uint32(batch)
		handler(batch[header:end:end], &outputs)
		batch = batch[(end+7)&^7:]
	}
	outputs.Flush()
}
