// Greets each message: `7` becomes `Hello, message 7`.
package main

import "unsafe"

// handle is what the function does: this is the part to change.
func handle(message []byte) {
	emit(0, []byte("Hello, message "+string(message)))
}

//go:wasmimport estafette send
func send(topic uint32, data unsafe.Pointer, length uint32) int32

// emit sends a message to the output topic with this index.
func emit(topic uint32, data []byte) {
	if send(topic, unsafe.Pointer(unsafe.SliceData(data)), uint32(len(data))) != 0 {
		panic("the host refused a message")
	}
}

// buffer is where the host writes messages; of words, so that it begins at a multiple of 8.
var buffer []uint64

// The host asks for a place of so many bytes.
//
//go:wasmexport estafette_buffer
func estafetteBuffer(capacity uint32) uint32 {
	buffer = make([]uint64, (capacity+7)/8+1)
	return uint32(uintptr(unsafe.Pointer(&buffer[0])))
}

// The host has written `count` messages to the buffer: each is its length in 4 bytes, 4 bytes to be
// ignored, and its bytes, filled up to a multiple of 8.
//
//go:wasmexport estafette_batch
func estafetteBatch(pointer, length, count uint32) {
	records := unsafe.Slice((*byte)(unsafe.Pointer(&buffer[0])), length)
	for ; count > 0; count-- {
		size := uint32(records[0]) | uint32(records[1])<<8 | uint32(records[2])<<16 | uint32(records[3])<<24
		handle(records[8 : 8+size])
		records = records[8+(size+7)/8*8:]
	}
}

func main() {}
