;; Gives a list that ends outside of its memory: 12 bytes times the count exceed 32 bits.
(module
  (import "estafette" "send_batch" (func $send_batch (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "estafette_buffer") (param $capacity i32) (result i32)
    (drop (memory.grow
      (i32.add (i32.shr_u (local.get $capacity) (i32.const 16)) (i32.const 1))))
    (i32.const 4096))
  (func (export "estafette_batch") (param $pointer i32) (param $bytes i32) (param $count i32)
    (drop (call $send_batch (i32.const 0) (i32.const 0x15555556)))))
