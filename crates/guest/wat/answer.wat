;; Answers each message of a stream with the message itself; batched ABI.
(module
  (import "estafette" "reply" (func $reply (param i32 i32) (result i32)))

  ;; The buffer for batches is at 4096.
  (memory (export "memory") 1)

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

  ;; Receives `count` records, back to back from `pointer` on. Traps if the host refuses an answer.
  (func (export "estafette_batch") (param $pointer i32) (param $bytes i32) (param $count i32)
    (local $length i32)
    (if (local.get $count)
      (then (loop $next
        (local.set $length (i32.load (local.get $pointer)))
        (if (call $reply (i32.add (local.get $pointer) (i32.const 8)) (local.get $length))
          (then (unreachable)))
        ;; The next record: 8 bytes of header, the payload, padding to a multiple of 8.
        (local.set $pointer
          (i32.add (local.get $pointer)
            (i32.and (i32.add (local.get $length) (i32.const 15)) (i32.const -8))))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br_if $next (local.get $count)))))))
