;; Counts messages and prints the count each 100,000; the reference's ABI.
;;
;; A message whose first byte is F is the last of its sender: count and time are printed.
(module
  (import "wasi_snapshot_preview1" "clock_time_get"
    (func $clock_time_get (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))

  ;; Memory:     0 texts
  ;;           512 scratch for WASI calls
  ;;          1024 the line that is printed
  ;;          4096 the buffer for a message, 1 MiB
  (memory (export "memory") 17)
  (data (i32.const 0) "Processed ")
  (data (i32.const 16) " messages")
  (data (i32.const 32) " in ")
  (data (i32.const 48) " ms")

  ;; Runs once, before the first message: there is nothing to prepare.
  (func (export "_start"))

  ;; The address of a buffer of 1 MiB, into which the host writes a message.
  (func (export "buffer_pointer") (result i32)
    (i32.const 4096))

  ;; Receives one message.
  (func (export "on_message") (param $pointer i32) (param $length i32)
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
