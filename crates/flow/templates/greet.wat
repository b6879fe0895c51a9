;; Greets each message: `7` becomes `Hello, message 7`.
;;
;; The host calls `estafette_buffer` for a place to write messages to, then `estafette_batch` for each
;; batch of them. A message lies there as
;;     4 bytes  its length, little-endian
;;     4 bytes  to be ignored
;;     its bytes, and as many more as fill them up to a multiple of 8
(module
  ;; Sends a message: the index of an output topic, the address and the length. 0 means that it is sent.
  (import "estafette" "send" (func $send (param i32 i32 i32) (result i32)))

  (memory (export "memory") 1)
  (data (i32.const 64) "Hello, message ")         ;; 15 bytes
  (global $greeting i32 (i32.const 64))
  (global $greeting_length i32 (i32.const 15))
  (global $input i32 (i32.const 128))             ;; the host writes batches here
  (global $output (mut i32) (i32.const 128))      ;; a message is put together here, behind the input

  (func (export "estafette_buffer") (param $capacity i32) (result i32)
    (local $missing i32)
    ;; The output begins behind the input, at a multiple of 8.
    (global.set $output
      (i32.and (i32.add (i32.add (global.get $input) (local.get $capacity)) (i32.const 7)) (i32.const -8)))
    ;; It takes a greeting and a message. How many pages of 64 KiB are missing?
    (local.set $missing
      (i32.sub
        (i32.shr_u
          (i32.add
            (i32.add (global.get $output) (i32.add (local.get $capacity) (global.get $greeting_length)))
            (i32.const 65535))
          (i32.const 16))
        (memory.size)))
    (if (i32.gt_s (local.get $missing) (i32.const 0))
      (then
        (if (i32.eq (memory.grow (local.get $missing)) (i32.const -1))
          (then unreachable))))
    (global.get $input))

  (func (export "estafette_batch") (param $pointer i32) (param $length i32) (param $count i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        ;; The length of the message, and where it begins.
        (local.set $length (i32.load (local.get $pointer)))
        (local.set $pointer (i32.add (local.get $pointer) (i32.const 8)))
        (call $greet (local.get $pointer) (local.get $length))
        ;; The next one begins at a multiple of 8.
        (local.set $pointer
          (i32.and
            (i32.add (i32.add (local.get $pointer) (local.get $length)) (i32.const 7))
            (i32.const -8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next))))

  (func $greet (param $message i32) (param $length i32)
    (memory.copy (global.get $output) (global.get $greeting) (global.get $greeting_length))
    (memory.copy
      (i32.add (global.get $output) (global.get $greeting_length))
      (local.get $message)
      (local.get $length))
    ;; To output topic 0. A message that the host refuses is an error: trap.
    (if (call $send
          (i32.const 0)
          (global.get $output)
          (i32.add (global.get $greeting_length) (local.get $length)))
      (then unreachable)))
)
