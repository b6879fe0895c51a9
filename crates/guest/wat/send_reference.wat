;; Sends N messages of one size to output topic 0, then a last one. The reference's ABI.
;;
;; Arguments: the number of messages and the bytes of each, as ["1000000", "1000"].
;; The message is random, filled once. Its first byte is S, of the last message F; its last four
;; bytes are the CRC-32 of those before them, little-endian.
(module
  (import "wasi_snapshot_preview1" "args_sizes_get"
    (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get"
    (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get"
    (func $clock_time_get (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit"
    (func $proc_exit (param i32)))
  (import "io" "send_message_to_topic_idx" (func $send_message (param i32 i32 i32)))

  ;; Memory:     0 texts
  ;;           512 scratch for WASI calls
  ;;          1024 the line that is printed
  ;;          2048 arguments
  ;;         16384 the message
  (memory (export "memory") 2)
  (data (i32.const 0) "Sent ")
  (data (i32.const 16) " messages in ")
  (data (i32.const 32) " ms")
  (data (i32.const 48) "Message size ")
  (data (i32.const 64) " speed ")
  (data (i32.const 80) " MiB/s")
  (data (i32.const 96) "send: args must be two numbers from 1: the messages and the bytes of each")
  (data (i32.const 192) "send: no memory for a message of ")

  ;; ---- The work ----

  (func (export "_start")
    (local $messages i64) (local $size i64) (local $start i64)
    (if (call $read_args)
      (then
        (local.set $messages (call $number_arg (i32.const 0)))
        (local.set $size (call $number_arg (i32.const 1)))))
    (if (i32.or (i64.eqz (local.get $messages)) (i64.eqz (local.get $size)))
      (then
        (call $text (i32.const 96) (i32.const 73))
        (call $fail)))
    (if (i32.eqz (call $make_room (local.get $size)))
      (then
        (call $text (i32.const 192) (i32.const 33))
        (call $number (local.get $size))
        (call $fail)))
    (call $fill (i32.wrap_i64 (local.get $size)))
    (call $mark (i32.const 83) (i32.wrap_i64 (local.get $size)))
    (local.set $start (call $now))
    (call $send_all (local.get $messages) (i32.wrap_i64 (local.get $size)))
    (call $mark (i32.const 70) (i32.wrap_i64 (local.get $size)))
    (call $send_all (i64.const 1) (i32.wrap_i64 (local.get $size)))
    (call $report (i64.add (local.get $messages) (i64.const 1)) (local.get $size)
      (call $milliseconds_since (local.get $start))))

  ;; Prints the two closing lines.
  (func $report (param $messages i64) (param $size i64) (param $ms i64)
    (call $text (i32.const 0) (i32.const 5))
    (call $number (local.get $messages))
    (call $text (i32.const 16) (i32.const 13))
    (call $number (local.get $ms))
    (call $text (i32.const 32) (i32.const 3))
    (call $write_line (i32.const 1))
    (call $text (i32.const 48) (i32.const 13))
    (call $number (local.get $size))
    (call $text (i32.const 64) (i32.const 7))
    ;; Bytes * 1000 / ms / 1 MiB; a run of less than a millisecond counts as one.
    (if (i64.eqz (local.get $ms)) (then (local.set $ms (i64.const 1))))
    (call $number
      (i64.shr_u
        (i64.div_u
          (i64.mul (i64.mul (local.get $messages) (local.get $size)) (i64.const 1000))
          (local.get $ms))
        (i64.const 20)))
    (call $text (i32.const 80) (i32.const 6))
    (call $write_line (i32.const 1)))

  ;; Writes the line to stderr and ends with exit code 1.
  (func $fail
    (call $write_line (i32.const 2))
    (call $proc_exit (i32.const 1))
    (unreachable))

  ;; Sends the message `messages` times, one call each.
  (func $send_all (param $messages i64) (param $size i32)
    (loop $next
      (call $send_message (i32.const 0) (i32.const 16384) (local.get $size))
      (local.set $messages (i64.sub (local.get $messages) (i64.const 1)))
      (br_if $next (i64.ne (local.get $messages) (i64.const 0)))))

  ;; ---- The message ----

  ;; Fills the message with random bytes, eight at a time: xorshift, seeded by the clock.
  (func $fill (param $size i32)
    (local $offset i32) (local $state i64)
    (local.set $state (i64.or (call $now) (i64.const 1)))
    (loop $next
      (local.set $state
        (i64.xor (local.get $state) (i64.shl (local.get $state) (i64.const 13))))
      (local.set $state
        (i64.xor (local.get $state) (i64.shr_u (local.get $state) (i64.const 7))))
      (local.set $state
        (i64.xor (local.get $state) (i64.shl (local.get $state) (i64.const 17))))
      (i64.store (i32.add (i32.const 16384) (local.get $offset)) (local.get $state))
      (local.set $offset (i32.add (local.get $offset) (i32.const 8)))
      (br_if $next (i32.lt_u (local.get $offset) (local.get $size)))))

  ;; Writes the mark to the first byte, and the CRC-32 of all but the last four bytes to those.
  ;; A message of less than five bytes has no checksum.
  (func $mark (param $mark i32) (param $size i32)
    (local $checked i32)
    (i32.store8 (i32.const 16384) (local.get $mark))
    (if (i32.ge_u (local.get $size) (i32.const 5))
      (then
        (local.set $checked (i32.sub (local.get $size) (i32.const 4)))
        (i32.store (i32.add (i32.const 16384) (local.get $checked))
          (call $crc32 (i32.const 16384) (local.get $checked))))))

  ;; CRC-32 as in zlib, bit by bit: it is needed but twice.
  (func $crc32 (param $at i32) (param $length i32) (result i32)
    (local $crc i32) (local $end i32) (local $bits i32)
    (local.set $crc (i32.const -1))
    (local.set $end (i32.add (local.get $at) (local.get $length)))
    (loop $next
      (local.set $crc (i32.xor (local.get $crc) (i32.load8_u (local.get $at))))
      (local.set $bits (i32.const 8))
      (loop $bit
        (local.set $crc
          (i32.xor
            (i32.shr_u (local.get $crc) (i32.const 1))
            (i32.and (i32.const 0xEDB88320)
              (i32.sub (i32.const 0) (i32.and (local.get $crc) (i32.const 1))))))
        (local.set $bits (i32.sub (local.get $bits) (i32.const 1)))
        (br_if $bit (local.get $bits)))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $at) (local.get $end))))
    (i32.xor (local.get $crc) (i32.const -1)))

  ;; Makes memory for a message of `size` bytes at 16384; false if there is none.
  (func $make_room (param $size i64) (result i32)
    (local $missing i64)
    (if (i64.gt_u (local.get $size) (i64.const 0x7fffffff)) (then (return (i32.const 0))))
    (local.set $missing
      (i64.sub
        (i64.shr_u (i64.add (local.get $size) (i64.const 0x14007)) (i64.const 16))
        (i64.extend_i32_u (memory.size))))
    (if (i64.le_s (local.get $missing) (i64.const 0)) (then (return (i32.const 1))))
    (i32.ne (memory.grow (i32.wrap_i64 (local.get $missing))) (i32.const -1)))

  ;; ---- Arguments: the first one has index 0, there is no program name before it. ----

  ;; Reads the arguments to 2048..4096; false if they do not fit, or are not two.
  (func $read_args (result i32)
    (drop (call $args_sizes_get (i32.const 536) (i32.const 540)))
    (if (i32.ne (i32.load (i32.const 536)) (i32.const 2)) (then (return (i32.const 0))))
    (if (i32.gt_u (i32.load (i32.const 540)) (i32.const 2000)) (then (return (i32.const 0))))
    (i32.eqz (call $args_get (i32.const 2048) (i32.const 2056))))

  ;; The argument as a number; 0 if it is none.
  (func $number_arg (param $index i32) (result i64)
    (local $at i32) (local $value i64) (local $digit i32)
    (local.set $at
      (i32.load (i32.add (i32.const 2048) (i32.mul (local.get $index) (i32.const 4)))))
    (block $end
      (loop $next
        (br_if $end (i32.eqz (i32.load8_u (local.get $at))))
        (local.set $digit (i32.sub (i32.load8_u (local.get $at)) (i32.const 48)))
        (if (i32.gt_u (local.get $digit) (i32.const 9)) (then (return (i64.const 0))))
        (local.set $value
          (i64.add (i64.mul (local.get $value) (i64.const 10))
                   (i64.extend_i32_u (local.get $digit))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    (local.get $value))

  ;; ---- Printing: pieces are appended to a line, then the line is written at once. ----

  (global $line_end (mut i32) (i32.const 1024))

  ;; Appends `length` bytes at `pointer`.
  (func $text (param $pointer i32) (param $length i32)
    (memory.copy (global.get $line_end) (local.get $pointer) (local.get $length))
    (global.set $line_end (i32.add (global.get $line_end) (local.get $length))))

  ;; Appends `value` in decimal, the last digit first: each call prints what is left of it.
  (func $number (param $value i64)
    (if (i64.ge_u (local.get $value) (i64.const 10))
      (then (call $number (i64.div_u (local.get $value) (i64.const 10)))))
    (i32.store8 (global.get $line_end)
      (i32.add (i32.const 48) (i32.wrap_i64 (i64.rem_u (local.get $value) (i64.const 10)))))
    (global.set $line_end (i32.add (global.get $line_end) (i32.const 1))))

  ;; Ends the line and writes it to the file descriptor: 1 is stdout, 2 is stderr.
  (func $write_line (param $fd i32)
    (i32.store8 (global.get $line_end) (i32.const 10))
    (i32.store (i32.const 512) (i32.const 1024))
    (i32.store (i32.const 516) (i32.sub (global.get $line_end) (i32.const 1023)))
    (drop (call $fd_write (local.get $fd) (i32.const 512) (i32.const 1) (i32.const 520)))
    (global.set $line_end (i32.const 1024)))

  ;; The monotonic clock, in ns; 0 where the host grants no clock.
  (func $now (result i64)
    (i64.store (i32.const 528) (i64.const 0))
    (drop (call $clock_time_get (i32.const 1) (i64.const 1) (i32.const 528)))
    (i64.load (i32.const 528)))

  ;; Whole milliseconds since `start`.
  (func $milliseconds_since (param $start i64) (result i64)
    (i64.div_u (i64.sub (call $now) (local.get $start)) (i64.const 1000000)))
)
