;; Prints 1,000 lines of 1 KiB each time it is called, and never ends the last one.
(module
  (import "wasi_snapshot_preview1" "fd_write"
    (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "estafette_buffer") (param $capacity i32) (result i32)
    (drop (memory.grow
      (i32.add (i32.shr_u (local.get $capacity) (i32.const 16)) (i32.const 1))))
    (i32.const 4096))
  (func (export "estafette_batch") (param $pointer i32) (param $bytes i32) (param $count i32)
    (local $lines i32)
    (memory.fill (i32.const 0x100) (i32.const 120) (i32.const 1023))
    (i32.store8 (i32.const 0x4ff) (i32.const 10))
    (i32.store (i32.const 0) (i32.const 0x100))
    (i32.store (i32.const 4) (i32.const 1024))
    (loop $next
      (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
      (local.set $lines (i32.add (local.get $lines) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $lines) (i32.const 1000))))
    (i32.store (i32.const 4) (i32.const 1023))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))
