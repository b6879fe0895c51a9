;; Checks the checksum of each message and counts them. The last four bytes of a message are the
;; CRC-32 of those before them, little-endian. A message whose first byte is F is the last of its
;; sender: count and time are printed. A wrong checksum is returned as an error.
;;
;; A component: the world `estafette:flow/function@0.1.0` of wit/flow.wit, by hand. A list is passed
;; as address and length; a message of a list is 8 bytes, address and length. An outgoing message is
;; 12 bytes: topic, address, length. See "Canonical ABI" in the component model's specification.
(component
  (import "estafette:flow/topics@0.1.0" (instance $topics
    (type $record (record (field "topic" u32) (field "data" (list u8))))
    (export "outgoing" (type $outgoing (eq $record)))
  ))
  (alias export $topics "outgoing" (type $outgoing))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (export "now" (func (result u64)))))
  (import "wasi:io/error@0.2.0" (instance $error (export "error" (type (sub resource)))))
  (alias export $error "error" (type $io-error))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (alias outer 1 $io-error (type $outer-error))
    (export "error" (type $error (eq $outer-error)))
    (export "output-stream" (type $output-stream (sub resource)))
    (type $variant (variant (case "last-operation-failed" (own $error)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $variant)))
    (export "[method]output-stream.blocking-write-and-flush" (func
      (param "self" (borrow $output-stream)) (param "contents" (list u8))
      (result (result (error $stream-error)))))
  ))
  (alias export $streams "output-stream" (type $output-stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $output-stream (type $outer-stream))
    (export "output-stream" (type $output-stream (eq $outer-stream)))
    (export "get-stdout" (func (result (own $output-stream))))))

  ;; Memory, and what the host allocates in it to pass arguments: nothing is freed before `reset`.
  (core module $Memory
    (memory (export "memory") 1)
    (global $next (mut i32) (i32.const 24576))

    (func (export "realloc")
      (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
      (local $at i32) (local $end i64) (local $missing i64)
      (local.set $at
        (i32.and
          (i32.sub (i32.add (global.get $next) (local.get $align)) (i32.const 1))
          (i32.sub (i32.const 0) (local.get $align))))
      (local.set $end
        (i64.add (i64.extend_i32_u (local.get $at)) (i64.extend_i32_u (local.get $size))))
      (local.set $missing
        (i64.sub
          (i64.shr_u (i64.add (local.get $end) (i64.const 0xffff)) (i64.const 16))
          (i64.extend_i32_u (memory.size))))
      (if (i64.gt_s (local.get $missing) (i64.const 0))
        (then
          (if (i32.eq (memory.grow (i32.wrap_i64 (local.get $missing))) (i32.const -1))
            (then (unreachable)))))
      (memory.copy (local.get $at) (local.get $old)
        (select (local.get $size) (local.get $old_size)
          (i32.lt_u (local.get $size) (local.get $old_size))))
      (global.set $next (i32.wrap_i64 (local.get $end)))
      (local.get $at))

    ;; Called after each call of the host, when it has read the result.
    (func (export "reset") (param $result i32)
      (global.set $next (i32.const 24576))))
  (core instance $memory (instantiate $Memory))
  (alias core export $memory "memory" (core memory $linear-memory))
  (alias core export $memory "realloc" (core func $realloc))
  (alias core export $memory "reset" (core func $reset))

  ;; What the function imports, as calls with addresses.
  (core func $now (canon lower (func $clock "now")))
  (core func $get_stdout (canon lower (func $stdout "get-stdout")))
  (core func $write (canon lower
    (func $streams "[method]output-stream.blocking-write-and-flush")
    (memory $linear-memory)))

  (core module $Function
    (import "memory" "memory" (memory 1))
    (import "host" "now" (func $now (result i64)))
    (import "host" "get_stdout" (func $get_stdout (result i32)))
    (import "host" "write" (func $write (param i32 i32 i32 i32)))

    ;; Memory:     0 texts
    ;;           512 the result, and what calls of the host return
    ;;          1024 the line that is printed
    ;;          4096 tables for the checksum
    ;;         24576 arguments
    (data (i32.const 0) "Processed ")
    (data (i32.const 16) " messages")
    (data (i32.const 32) " in ")
    (data (i32.const 48) " ms")
    (data (i32.const 64) "Message ")
    (data (i32.const 80) " has a wrong checksum")

    (func (export "start") (param $args i32) (param $count i32) (result i32)
      (call $fill_tables)
      (call $ok (i32.const 0) (i32.const 0)))

    (func (export "handle") (param $messages i32) (param $count i32) (result i32)
      (local $end i32)
      (local.set $end
        (i32.add (local.get $messages) (i32.mul (local.get $count) (i32.const 8))))
      (block $done
        (loop $next
          (br_if $done (i32.eq (local.get $messages) (local.get $end)))
          (if (i32.eqz
                (call $check
                  (i32.load (local.get $messages)) (i32.load offset=4 (local.get $messages))))
            (then
              (call $text (i32.const 64) (i32.const 8))
              (call $number (i64.add (global.get $messages) (i64.const 1)))
              (call $text (i32.const 80) (i32.const 21))
              (return (call $line_as_error))))
          (call $count
            (i32.load (local.get $messages)) (i32.load offset=4 (local.get $messages)))
          (local.set $messages (i32.add (local.get $messages) (i32.const 8)))
          (br $next)))
      ;; There is nothing to send.
      (call $ok (i32.const 0) (i32.const 0)))

    ;; ---- Counting ----

    (global $messages (mut i64) (i64.const 0))
    (global $start (mut i64) (i64.const 0))

    ;; Counts a message. Prints the count each 100,000, and count and time at the last message,
    ;; whose
    ;; first byte is F. The time is that since the first message.
    (func $count (param $pointer i32) (param $length i32)
      (if (i64.eqz (global.get $messages)) (then (global.set $start (call $now))))
      (global.set $messages (i64.add (global.get $messages) (i64.const 1)))
      (if (local.get $length)
        (then
          (if (i32.eq (i32.load8_u (local.get $pointer)) (i32.const 70))
            (then (call $report_end) (return)))))
      (if (i64.eqz (i64.rem_u (global.get $messages) (i64.const 100000)))
        (then (call $report_count) (call $write_line))))

    (func $report_count
      (call $text (i32.const 0) (i32.const 10))
      (call $number (global.get $messages))
      (call $text (i32.const 16) (i32.const 9)))

    (func $report_end
      (call $report_count)
      (call $text (i32.const 32) (i32.const 4))
      (call $milliseconds (i64.sub (call $now) (global.get $start)))
      (call $text (i32.const 48) (i32.const 3))
      (call $write_line))

    ;; ---- The checksum ----

    ;; Whether the last four bytes are the CRC-32 of those before them.
    (func $check (param $pointer i32) (param $length i32) (result i32)
      (local $checked i32)
      (local.set $checked (i32.sub (local.get $length) (i32.const 4)))
      (if (i32.lt_u (local.get $length) (i32.const 5)) (then (return (i32.const 0))))
      (i32.eq
        (i32.load (i32.add (local.get $pointer) (local.get $checked)))
        (call $crc32 (local.get $pointer) (local.get $checked))))

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
    (func $fill_tables
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

    ;; ---- Results: a byte that is 1 for an error, and at offset 4 address and length. ----

    (func $ok (param $list i32) (param $count i32) (result i32)
      (i32.store8 (i32.const 512) (i32.const 0))
      (i32.store (i32.const 516) (local.get $list))
      (i32.store (i32.const 520) (local.get $count))
      (i32.const 512))

    ;; The line as an error.
    (func $line_as_error (result i32)
      (i32.store8 (i32.const 512) (i32.const 1))
      (i32.store (i32.const 516) (i32.const 1024))
      (i32.store (i32.const 520) (i32.sub (global.get $line_end) (i32.const 1024)))
      (global.set $line_end (i32.const 1024))
      (i32.const 512))

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


    ;; Ends the line and writes it to stdout.
    (func $write_line
      (i32.store8 (global.get $line_end) (i32.const 10))
      ;; The stream is asked for once. What a write returns is not looked at.
      (if (i32.eq (global.get $stdout) (i32.const -1))
        (then (global.set $stdout (call $get_stdout))))
      (call $write (global.get $stdout)
        (i32.const 1024) (i32.sub (global.get $line_end) (i32.const 1023)) (i32.const 528))
      (global.set $line_end (i32.const 1024)))

    (global $stdout (mut i32) (i32.const -1))

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
  (core instance $function (instantiate $Function
    (with "host" (instance
      (export "now" (func $now))
      (export "get_stdout" (func $get_stdout))
      (export "write" (func $write))))
    (with "memory" (instance $memory))))

  ;; What the function exports.
  (func (export "start") (param "args" (list string)) (result (result (error string)))
    (canon lift (core func $function "start")
      (memory $linear-memory) (realloc $realloc) (post-return $reset)))
  (func (export "handle")
    (param "messages" (list (list u8))) (result (result (list $outgoing) (error string)))
    (canon lift (core func $function "handle")
      (memory $linear-memory) (realloc $realloc) (post-return $reset))))
