;; Sends N messages of one size to output topic 0, then a last one.
;;
;; Arguments: the number of messages and the bytes of each, as ["1000000", "1000"].
;; The message is random, filled once. Its first byte is S, of the last message F; its last four
;; bytes are the CRC-32 of those before them, little-endian.
;;
;; A component: the world `estafette:flow/function@0.1.0` of wit/flow.wit, by hand. A list is passed
;; as address and length; a message of a list is 8 bytes, address and length. An outgoing message is
;; 12 bytes: topic, address, length. See "Canonical ABI" in the component model's specification.
(component
  (import "estafette:flow/topics@0.1.0" (instance $topics
    (type $record (record (field "topic" u32) (field "data" (list u8))))
    (export "outgoing" (type $outgoing (eq $record)))
    (type $variant (variant (case "no-such-topic" u32) (case "too-long" u32)))
    (export "send-error" (type $send-error (eq $variant)))
    (export "send" (func
      (param "messages" (list $outgoing)) (result (result (error $send-error)))))
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
  (core func $send (canon lower (func $topics "send") (memory $linear-memory)))

  (core module $Function
    (import "memory" "memory" (memory 1))
    (import "memory" "realloc"
      (func $realloc (param i32 i32 i32 i32) (result i32)))
    (import "host" "now" (func $now (result i64)))
    (import "host" "get_stdout" (func $get_stdout (result i32)))
    (import "host" "write" (func $write (param i32 i32 i32 i32)))
    (import "host" "send" (func $send (param i32 i32 i32)))

    ;; Memory:     0 texts
    ;;           512 the result, and what calls of the host return
    ;;          1024 the line that is printed
    ;;          4096 the list for send: at most 512 entries of 12 bytes
    ;;         24576 arguments, then the message
    (data (i32.const 0) "Sent ")
    (data (i32.const 16) " messages in ")
    (data (i32.const 32) " ms")
    (data (i32.const 48) "Message size ")
    (data (i32.const 64) " speed ")
    (data (i32.const 80) " MiB/s")
    (data (i32.const 96) "args must be two numbers from 1: the messages and the bytes of each")
    (data (i32.const 192) "send has no input")
    (data (i32.const 240) "there is no output topic")
    (data (i32.const 288) "the message is too long for its topic")

    (func (export "start") (param $args i32) (param $count i32) (result i32)
      (local $messages i64) (local $size i64) (local $begin i64)
      (if (i32.eq (local.get $count) (i32.const 2))
        (then
          (local.set $messages (call $number_arg (local.get $args)))
          (local.set $size (call $number_arg (i32.add (local.get $args) (i32.const 8))))))
      (if (i32.or
            (i64.eqz (local.get $messages))
            (i64.gt_u (i64.sub (local.get $size) (i64.const 1)) (i64.const 0x7ffffffe)))
        (then
          (call $text (i32.const 96) (i32.const 67))
          (return (call $line_as_error))))
      (global.set $message
        (call $realloc (i32.const 0) (i32.const 0) (i32.const 8)
          (i32.wrap_i64 (i64.add (local.get $size) (i64.const 7)))))
      (call $fill (i32.wrap_i64 (local.get $size)))
      (call $mark (i32.const 83) (i32.wrap_i64 (local.get $size)))
      (local.set $begin (call $now))
      (if (call $send_all (local.get $messages) (i32.wrap_i64 (local.get $size)))
        (then (return (call $line_as_error))))
      (call $mark (i32.const 70) (i32.wrap_i64 (local.get $size)))
      (if (call $send_all (i64.const 1) (i32.wrap_i64 (local.get $size)))
        (then (return (call $line_as_error))))
      (call $report (i64.add (local.get $messages) (i64.const 1)) (local.get $size)
        (call $milliseconds_since (local.get $begin)))
      (call $ok (i32.const 0) (i32.const 0)))

    (func (export "handle") (param $messages i32) (param $count i32) (result i32)
      (call $text (i32.const 192) (i32.const 17))
      (call $line_as_error))

    ;; Where the message lies.
    (global $message (mut i32) (i32.const 0))

    ;; Prints the two closing lines.
    (func $report (param $messages i64) (param $size i64) (param $ms i64)
      (call $text (i32.const 0) (i32.const 5))
      (call $number (local.get $messages))
      (call $text (i32.const 16) (i32.const 13))
      (call $number (local.get $ms))
      (call $text (i32.const 32) (i32.const 3))
      (call $write_line)
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
      (call $write_line))

    ;; Sends the message `messages` times, in lists of about 256 KiB. True if the host refused it:
    ;; then
    ;; the reason is in the line.
    (func $send_all (param $messages i64) (param $size i32) (result i32)
      (local $count i32)
      (local.set $count (call $list_length (local.get $size)))
      (call $fill_list (local.get $count) (local.get $size))
      (loop $next
        (if (i64.lt_u (local.get $messages) (i64.extend_i32_u (local.get $count)))
          (then (local.set $count (i32.wrap_i64 (local.get $messages)))))
        (call $send (i32.const 4096) (local.get $count) (i32.const 528))
        ;; The result: a byte that is 1 for an error, and at offset 4 a byte that says which.
        (if (i32.load8_u (i32.const 528))
          (then (call $refused (i32.load8_u (i32.const 532))) (return (i32.const 1))))
        (local.set $messages
          (i64.sub (local.get $messages) (i64.extend_i32_u (local.get $count))))
        (br_if $next (i64.ne (local.get $messages) (i64.const 0))))
      (i32.const 0))

    (func $refused (param $too_long i32)
      (if (local.get $too_long)
        (then (call $text (i32.const 288) (i32.const 37)))
        (else (call $text (i32.const 240) (i32.const 24)))))

    ;; 256 KiB / size, from 1 to 512.
    (func $list_length (param $size i32) (result i32)
      (local $count i32)
      (local.set $count (i32.div_u (i32.const 0x40000) (local.get $size)))
      (if (i32.eqz (local.get $count)) (then (return (i32.const 1))))
      (select (i32.const 512) (local.get $count) (i32.gt_u (local.get $count) (i32.const 512))))

    ;; Each entry: topic, address, length. All of them are the same message.
    (func $fill_list (param $count i32) (param $size i32)
      (local $entry i32)
      (local.set $entry (i32.const 4096))
      (loop $next
        (i32.store (local.get $entry) (i32.const 0))
        (i32.store offset=4 (local.get $entry) (global.get $message))
        (i32.store offset=8 (local.get $entry) (local.get $size))
        (local.set $entry (i32.add (local.get $entry) (i32.const 12)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br_if $next (local.get $count))))

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
        (i64.store (i32.add (global.get $message) (local.get $offset)) (local.get $state))
        (local.set $offset (i32.add (local.get $offset) (i32.const 8)))
        (br_if $next (i32.lt_u (local.get $offset) (local.get $size)))))

    ;; Writes the mark to the first byte, and the CRC-32 of all but the last four bytes to those.
    ;; A message of less than five bytes has no checksum.
    (func $mark (param $mark i32) (param $size i32)
      (local $checked i32)
      (i32.store8 (global.get $message) (local.get $mark))
      (if (i32.ge_u (local.get $size) (i32.const 5))
        (then
          (local.set $checked (i32.sub (local.get $size) (i32.const 4)))
          (i32.store (i32.add (global.get $message) (local.get $checked))
            (call $crc32 (global.get $message) (local.get $checked))))))

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

    ;; ---- Arguments ----

    ;; The argument, whose address and length are at `argument`, as a number; 0 if it is none.
    (func $number_arg (param $argument i32) (result i64)
      (local $at i32) (local $end i32) (local $value i64) (local $digit i32)
      (local.set $at (i32.load (local.get $argument)))
      (local.set $end (i32.add (local.get $at) (i32.load offset=4 (local.get $argument))))
      (block $done
        (loop $next
          (br_if $done (i32.eq (local.get $at) (local.get $end)))
          (local.set $digit (i32.sub (i32.load8_u (local.get $at)) (i32.const 48)))
          (if (i32.gt_u (local.get $digit) (i32.const 9)) (then (return (i64.const 0))))
          (local.set $value
            (i64.add (i64.mul (local.get $value) (i64.const 10))
                     (i64.extend_i32_u (local.get $digit))))
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br $next)))
      (local.get $value))

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

    ;; Whole milliseconds since `start`.
    (func $milliseconds_since (param $start i64) (result i64)
      (i64.div_u (i64.sub (call $now) (local.get $start)) (i64.const 1000000)))
  )
  (core instance $function (instantiate $Function
    (with "host" (instance
      (export "now" (func $now))
      (export "get_stdout" (func $get_stdout))
      (export "write" (func $write))
      (export "send" (func $send))))
    (with "memory" (instance $memory))))

  ;; What the function exports.
  (func (export "start") (param "args" (list string)) (result (result (error string)))
    (canon lift (core func $function "start")
      (memory $linear-memory) (realloc $realloc) (post-return $reset)))
  (func (export "handle")
    (param "messages" (list (list u8))) (result (result (list $outgoing) (error string)))
    (canon lift (core func $function "handle")
      (memory $linear-memory) (realloc $realloc) (post-return $reset))))
