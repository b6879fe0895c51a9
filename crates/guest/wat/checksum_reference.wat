;; Checks the checksum of each message and counts them; the reference's ABI.
;;
;; The last four bytes of a message are the CRC-32 of those before them, little-endian. A message
;; whose first byte is F is the last of its sender: count and time are printed. A wrong checksum is
;; reported, then the function traps.
(module
  (import "wasi_snapshot_preview1" "clock_time_get"
    (func $clock_time_get (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))

  ;; Memory:     0 texts
  ;;           512 scratch for WASI calls
  ;;          1024 the line that is printed
  ;;          4096 tables for the checksum
  ;;         20480 the buffer for a message, 1 MiB
  (memory (export "memory") 17)
  (data (i32.const 0) "Processed ")
  (data (i32.const 16) " messages")
  (data (i32.const 32) " in ")
  (data (i32.const 48) " ms")
  (data (i32.const 64) "Message ")
  (data (i32.const 80) " has a wrong checksum")

  ;; The address of a buffer of 1 MiB, into which the host writes a message.
  (func (export "buffer_pointer") (result i32)
    (i32.const 20480))

  ;; Receives one message.
  (func (export "on_message") (param $pointer i32) (param $length i32)
    (call $check (local.get $pointer) (local.get $length))
    (call $count (local.get $pointer) (local.get $length)))

  ;; ---- Counting ----

  (global $messages (mut i64) (i64.const 0))
  (global $start (mut i64) (i64.const 0))

  ;; Counts a message. Prints the count each 100,000, and count and time at the last message, whose
  ;; first byte is F. The time is that since the first message.
  (func $count (param $pointer i32) (param $length i32)
    (if (i64.eqz (global.get $messages)) (then (global.set $start (call $now))))
    (global.set $messages (i64.add (global.get $messages) (i64.const 1)))
    (if (local.get $length)
      (then
        (if (i32.eq (i32.load8_u (local.get $pointer)) (i32.const 70))
          (then (call $report_end) (return)))))
    (if (i64.eqz (i64.rem_u (global.get $messages) (i64.const 100000)))
      (then (call $report_count) (call $write_line (i32.const 1)))))

  (func $report_count
    (call $text (i32.const 0) (i32.const 10))
    (call $number (global.get $messages))
    (call $text (i32.const 16) (i32.const 9)))

  (func $report_end
    (call $report_count)
    (call $text (i32.const 32) (i32.const 4))
    (call $milliseconds (i64.sub (call $now) (global.get $start)))
    (call $text (i32.const 48) (i32.const 3))
    (call $write_line (i32.const 1)))

  ;; ---- The checksum ----

  ;; Traps if the last four bytes are not the CRC-32 of those before them, or there are none.
  (func $check (param $pointer i32) (param $length i32)
    (local $checked i32)
    (local.set $checked (i32.sub (local.get $length) (i32.const 4)))
    (if (i32.ge_u (local.get $length) (i32.const 5))
      (then
        (if (i32.eq
              (i32.load (i32.add (local.get $pointer) (local.get $checked)))
              (call $crc32 (local.get $pointer) (local.get $checked)))
          (then (return)))))
    (call $text (i32.const 64) (i32.const 8))
    (call $number (i64.add (global.get $messages) (i64.const 1)))
    (call $text (i32.const 80) (i32.const 21))
    (call $write_line (i32.const 2))
    (unreachable))

  ;; CRC-32 as in zlib, 16 bytes at a time: "slicing-by-16", after Kounavis and Berry, 2005.
  ;; A table has 256 entries of 4 bytes: a byte of a word is shifted to be an offset in a table.
  (func $crc32 (param $at i32) (param $length i32) (result i32)
    (local $crc i32) (local $end i32)
    (local $a i32) (local $b i32) (local $c i32) (local $d i32)
    (local.set $crc (i32.const -1))
    (local.set $end (i32.add (local.get $at) (local.get $length)))
    (block $tail
      (loop $next
        (br_if $tail
          (i32.lt_u (i32.sub (local.get $end) (local.get $at)) (i32.const 16)))
        (local.set $a (i32.xor (i32.load (local.get $at)) (local.get $crc)))
        (local.set $b (i32.load offset=4 (local.get $at)))
        (local.set $c (i32.load offset=8 (local.get $at)))
        (local.set $d (i32.load offset=12 (local.get $at)))
        ;; One lookup a line. Those of $a come last, as only they wait for the CRC so far.
        local.get $d i32.const 22 i32.shr_u i32.const 1020 i32.and i32.load offset=4096
        local.get $d i32.const 14 i32.shr_u i32.const 1020 i32.and i32.load offset=5120 i32.xor
        local.get $d i32.const 6 i32.shr_u i32.const 1020 i32.and i32.load offset=6144 i32.xor
        local.get $d i32.const 2 i32.shl i32.const 1020 i32.and i32.load offset=7168 i32.xor
        local.get $c i32.const 22 i32.shr_u i32.const 1020 i32.and i32.load offset=8192 i32.xor
        local.get $c i32.const 14 i32.shr_u i32.const 1020 i32.and i32.load offset=9216 i32.xor
        local.get $c i32.const 6 i32.shr_u i32.const 1020 i32.and i32.load offset=10240 i32.xor
        local.get $c i32.const 2 i32.shl i32.const 1020 i32.and i32.load offset=11264 i32.xor
        local.get $b i32.const 22 i32.shr_u i32.const 1020 i32.and i32.load offset=12288 i32.xor
        local.get $b i32.const 14 i32.shr_u i32.const 1020 i32.and i32.load offset=13312 i32.xor
        local.get $b i32.const 6 i32.shr_u i32.const 1020 i32.and i32.load offset=14336 i32.xor
        local.get $b i32.const 2 i32.shl i32.const 1020 i32.and i32.load offset=15360 i32.xor
        local.get $a i32.const 22 i32.shr_u i32.const 1020 i32.and i32.load offset=16384 i32.xor
        local.get $a i32.const 14 i32.shr_u i32.const 1020 i32.and i32.load offset=17408 i32.xor
        local.get $a i32.const 6 i32.shr_u i32.const 1020 i32.and i32.load offset=18432 i32.xor
        local.get $a i32.const 2 i32.shl i32.const 1020 i32.and i32.load offset=19456 i32.xor
        local.set $crc
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (br $next)))
    (block $done
      (loop $byte
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $crc
          (i32.xor
            (i32.shr_u (local.get $crc) (i32.const 8))
            (call $entry (i32.xor (local.get $crc) (i32.load8_u (local.get $at))))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $byte)))
    (i32.xor (local.get $crc) (i32.const -1)))

  ;; The entry of the low byte of `byte` in table 0.
  (func $entry (param $byte i32) (result i32)
    (i32.load offset=4096 (i32.and (i32.const 1020) (i32.shl (local.get $byte) (i32.const 2)))))

  ;; Fills the 16 tables of 256 entries at 4096. Table 0 is the CRC of one byte, each further
  ;; table is that of the one before with a zero byte behind it.
  (func (export "_start")
    (local $at i32) (local $crc i32) (local $bits i32)
    (loop $next
      (local.set $crc (i32.shr_u (local.get $at) (i32.const 2)))
      (local.set $bits (i32.const 8))
      (loop $bit
        (local.set $crc
          (i32.xor
            (i32.shr_u (local.get $crc) (i32.const 1))
            (i32.and (i32.const 0xEDB88320)
              (i32.sub (i32.const 0) (i32.and (local.get $crc) (i32.const 1))))))
        (local.set $bits (i32.sub (local.get $bits) (i32.const 1)))
        (br_if $bit (local.get $bits)))
      (i32.store offset=4096 (local.get $at) (local.get $crc))
      (local.set $at (i32.add (local.get $at) (i32.const 4)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 1024))))
    (loop $next
      (local.set $crc (i32.load offset=3072 (local.get $at)))
      (i32.store offset=4096 (local.get $at)
        (i32.xor
          (i32.shr_u (local.get $crc) (i32.const 8))
          (call $entry (local.get $crc))))
      (local.set $at (i32.add (local.get $at) (i32.const 4)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 16384)))))

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

  ;; Appends nanoseconds as milliseconds, with three digits after the point.
  (func $milliseconds (param $ns i64)
    (local $us i64)
    (local.set $us (i64.div_u (local.get $ns) (i64.const 1000)))
    (call $number (i64.div_u (local.get $us) (i64.const 1000)))
    ;; A point and the three digits: a 1 before them keeps their zeros, the point takes its place.
    (call $number
      (i64.add (i64.const 1000) (i64.rem_u (local.get $us) (i64.const 1000))))
    (i32.store8 (i32.sub (global.get $line_end) (i32.const 4)) (i32.const 46)))
)
