;; Passes each message on to output topic 0; batched ABI.
;;
;; The list for send_batch points into the received batch: nothing is copied here.
(module
  (import "estafette" "send_batch" (func $send_batch (param i32 i32) (result i32)))

  ;; Memory:     0 the list for send_batch: at most 1,024 entries of 12 bytes
  ;;         16384 the buffer for batches
  (memory (export "memory") 1)

  ;; The address of a buffer for batches of `capacity` bytes; 0 if there is no memory for it.
  (func (export "estafette_buffer") (param $capacity i32) (result i32)
    (local $missing i64)
    (local.set $missing
      (i64.sub
        (i64.shr_u
          (i64.add (i64.extend_i32_u (local.get $capacity)) (i64.const 0x13fff))
          (i64.const 16))
        (i64.extend_i32_u (memory.size))))
    (if (i64.gt_s (local.get $missing) (i64.const 0))
      (then
        (if (i32.eq (memory.grow (i32.wrap_i64 (local.get $missing))) (i32.const -1))
          (then (return (i32.const 0))))))
    (i32.const 16384))

  ;; Receives `count` records, back to back from `pointer` on.
  (func (export "estafette_batch") (param $pointer i32) (param $bytes i32) (param $count i32)
    (local $length i32) (local $entry i32)
    (if (local.get $count)
      (then (loop $next
        (local.set $length (i32.load (local.get $pointer)))
        ;; An entry: topic, address, length.
        (i32.store (local.get $entry) (i32.const 0))
        (i32.store offset=4 (local.get $entry) (i32.add (local.get $pointer) (i32.const 8)))
        (i32.store offset=8 (local.get $entry) (local.get $length))
        (local.set $entry (i32.add (local.get $entry) (i32.const 12)))
        (if (i32.eq (local.get $entry) (i32.const 12288))
          (then
            (call $send (local.get $entry))
            (local.set $entry (i32.const 0))))
        ;; The next record: 8 bytes of header, the payload, padding to a multiple of 8.
        (local.set $pointer
          (i32.add (local.get $pointer)
            (i32.and (i32.add (local.get $length) (i32.const 15)) (i32.const -8))))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br_if $next (local.get $count)))))
    (if (local.get $entry) (then (call $send (local.get $entry)))))

  ;; Sends the entries below `end`; traps if the host refuses them.
  (func $send (param $end i32)
    (if (call $send_batch (i32.const 0) (i32.div_u (local.get $end) (i32.const 12)))
      (then (unreachable)))))
