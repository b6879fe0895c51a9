;; Grows its memory by 1 MiB each time it is called, and traps when it gets no more.
(module
  (memory (export "memory") 1)
  (func (export "estafette_buffer") (param $capacity i32) (result i32)
    (drop (memory.grow
      (i32.add (i32.shr_u (local.get $capacity) (i32.const 16)) (i32.const 1))))
    (i32.const 4096))
  (func (export "estafette_batch") (param $pointer i32) (param $bytes i32) (param $count i32)
    (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then (unreachable)))
    ;; Touches what it got, so that it counts.
    (memory.fill
      (i32.shl (i32.sub (memory.size) (i32.const 16)) (i32.const 16))
      (i32.const 1) (i32.const 0x100000))))
