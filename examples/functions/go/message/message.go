// Package message is shared by the functions of this folder: the checksum of a message, and the
// counter of messages.
package message

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
)

// The first byte of each message except the last, and the first byte of the last one.
const (
	Mark     = 'S'
	LastMark = 'F'
)

const checksum = 4

// SetMark writes the mark to the first byte. Then it writes the checksum to the last four bytes:
// the CRC-32 of all bytes before it, little-endian. A message of less than five bytes has no
// checksum.
func SetMark(message []byte, mark byte) {
	message[0] = mark
	if content := len(message) - checksum; content > 0 {
		binary.LittleEndian.PutUint32(message[content:], crc32.ChecksumIEEE(message[:content]))
	}
}

// HasChecksum reports whether a message ends with the checksum of the bytes before it.
func HasChecksum(message []byte) bool {
	content := len(message) - checksum
	return content > 0 && binary.LittleEndian.Uint32(message[content:]) == crc32.ChecksumIEEE(message[:content])
}

// Counter counts messages.
type Counter struct {
	Messages uint64
	start    time.Time
}

// Count counts a message. It prints the count every 100,000 messages, and the count and the time at
// the last message.
func (counter *Counter) Count(message []byte) {
	if counter.Messages == 0 {
		counter.start = time.Now()
	}
	counter.Messages++
	if len(message) > 0 && message[0] == LastMark {
		ms := time.Since(counter.start).Milliseconds()
		fmt.Printf("Processed %d messages in %d ms\n", counter.Messages, ms)
	} else if counter.Messages%100_000 == 0 {
		fmt.Printf("Processed %d messages\n", counter.Messages)
	}
}
