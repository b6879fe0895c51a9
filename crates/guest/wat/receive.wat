;; Counts messages and prints the count each 100,000; batched ABI.
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
  ;;          4096 the buffer for batches
  (memory (export "memory") 1)
  (data (i32.const 0) "Processed ")
  (data (i32.const 16) " messages")
  (data (i32.const 32) " in ")
  (data (i32.const 48) " ms")

  ;; The address of a buffer for batches of `capacity` bytes; 0 if there is no memory for it.
  (func (export "estafette_buffer") (param $capacity i32) (result i32)
    (local $missing i64)
    (local.set $missing
      (i64.sub
        (i64.shr_u
          (i64.add (i64.extend_i32_u (local.get $capacity)) (i64.const 0x10fff))
          (i64.const 16))
        (i64.extend_i32_u (memory.size))))
    (if (i64.gt_s (local.get $missing) (i64.const 0))
      (then
        (if (i32.eq (memory.grow (i32.wrap_i64 (local.get $missing))) (i32.const -1))
          (then (return (i32.const 0))))))
    (i32.const 4096))

  ;; Receives `count` records, back to back from `pointer` on.
  (func (export "estafette_batch") (param $pointer i32) (param $bytes i32) (param $count i32)
    (local $length i32)
    (if (local.get $count)
      (then (loop $next
        (local.set $length (i32.load (local.get $pointer)))
        (call $count (i32.add (local.get $pointer) (i32.const 8)) (local.get $length))
        ;; The next record: 8 bytes of header, the payload, padding to a multiple of 8.
        (local.set $pointer
          (i32.add (local.get $pointer)
            (i32.and (i32.add (local.get $length) (i32.const 15)) (i32.const -8))))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br_if $next (local.get $count))))))

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
