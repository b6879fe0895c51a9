  (memory (export "memory") 20)
  ;; PATTERN

  ;; The next step of each list of steps.
  (global $start_step (mut i32) (i32.const 0x4400))
  (global $buffer_step (mut i32) (i32.const 0x4800))
  (global $message_step (mut i32) (i32.const 0x4c00))

  ;; Reads the steps from the first argument, where each half of a byte is a letter from `a` to `p`.
  (func $load (local $from i32) (local $to i32)
    (drop (call $args_get (i32.const 0) (i32.const 8)))
    (local.set $from (i32.const 8))
    (local.set $to (i32.const 0x4000))
    (block $loaded
      (loop $next
        (br_if $loaded (i32.eqz (i32.load8_u (local.get $from))))
        (i32.store8 (local.get $to)
          (i32.or
            (i32.shl (i32.sub (i32.load8_u (local.get $from)) (i32.const 97)) (i32.const 4))
            (i32.sub (i32.load8_u offset=1 (local.get $from)) (i32.const 97))))
        (local.set $from (i32.add (local.get $from) (i32.const 2)))
        (local.set $to (i32.add (local.get $to) (i32.const 1)))
        (br $next)))
    (memory.fill (i32.const 0) (i32.const 0) (i32.const 0x4000)))

  (func $start_section
    (call $load)
    (drop (drop (call $run (i32.const 0x4000) (i32.const 0x4400)))))
  (start $start_section)

  (func (export "_start")
    (global.set $start_step (call $run (global.get $start_step) (i32.const 0x4800)))
    (drop))

  ;; Takes steps until one ends the call or none is left. Returns what the call is to return, and the next step.
  ;; The result of a step replaces its first word.
  (func $run (param $step i32) (param $end i32) (result i32 i32)
    (local $code i32) (local $a i32) (local $b i32) (local $c i32) (local $result i32)
    (loop $next
      (if (i32.ge_u (local.get $step) (local.get $end))
        (then (return (i32.const 0x20000) (local.get $step))))
      (local.set $code (i32.and (i32.load (local.get $step)) (i32.const 0xff)))
      (local.set $a (i32.load offset=4 (local.get $step)))
      (local.set $b (i32.load offset=8 (local.get $step)))
      (local.set $c (i32.load offset=12 (local.get $step)))
      (local.set $result (i32.const 0))
      (block $done
        (block $entry (block $log (block $fill (block $store (block $grow (block $exit (block $trap
        (block $reply (block $send_batch (block $send (block $return (block $end
          (br_table $end $return $send $send_batch $reply $trap $exit $grow $store $fill $log $entry $end
            (local.get $code)))
          ;; end
          (return (i32.const 0x20000) (i32.add (local.get $step) (i32.const 16))))
          ;; return
          (return (local.get $a) (i32.add (local.get $step) (i32.const 16))))
          ;; send
          (local.set $result (call $send (local.get $a) (local.get $b) (local.get $c)))
          (br $done))
          ;; send_batch
          (local.set $result (call $send_batch (local.get $a) (local.get $b)))
          (br $done))
          ;; reply
          (local.set $result (call $reply (local.get $a) (local.get $b)))
          (br $done))
          ;; trap
          (unreachable))
          ;; exit
          (call $proc_exit (local.get $a))
          (br $done))
          ;; grow
          (local.set $result (memory.grow (local.get $a)))
          (br $done))
          ;; store
          (i32.store (local.get $a) (local.get $b))
          (br $done))
          ;; fill
          (memory.fill (local.get $a) (local.get $b) (local.get $c))
          (br $done))
          ;; log
          (i32.store (i32.const 16) (local.get $a))
          (i32.store (i32.const 20) (local.get $b))
          (local.set $result (call $fd_write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 24)))
          (br $done))
        ;; entry: of the list for send_batch, by the number in the second byte of the step
        (local.set $code
          (i32.add (i32.const 0x1000)
            (i32.mul (i32.and (i32.shr_u (i32.load (local.get $step)) (i32.const 8)) (i32.const 0xff)) (i32.const 12))))
        (i32.store (local.get $code) (local.get $a))
        (i32.store offset=4 (local.get $code) (local.get $b))
        (i32.store offset=8 (local.get $code) (local.get $c)))
      (i32.store (local.get $step) (local.get $result))
      (local.set $step (i32.add (local.get $step) (i32.const 16)))
      (br $next))
    (unreachable))
