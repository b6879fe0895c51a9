;; Passes each message on to output topic 0.
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

  (core module $Function
    (import "memory" "memory" (memory 1))
    (import "memory" "realloc"
      (func $realloc (param i32 i32 i32 i32) (result i32)))

    ;; There is nothing to prepare.
    (func (export "start") (param $args i32) (param $count i32) (result i32)
      (call $ok (i32.const 0) (i32.const 0)))

    (func (export "handle") (param $messages i32) (param $count i32) (result i32)
      (local $list i32) (local $entry i32) (local $end i32)
      (local.set $list
        (call $realloc (i32.const 0) (i32.const 0) (i32.const 4)
          (i32.mul (local.get $count) (i32.const 12))))
      (local.set $entry (local.get $list))
      (local.set $end
        (i32.add (local.get $messages) (i32.mul (local.get $count) (i32.const 8))))
      (block $done
        (loop $next
          (br_if $done (i32.eq (local.get $messages) (local.get $end)))
          (i32.store (local.get $entry) (i32.const 0))
          ;; Address and length, where they are: the bytes are not copied here.
          (i64.store offset=4 align=4 (local.get $entry)
            (i64.load align=4 (local.get $messages)))
          (local.set $entry (i32.add (local.get $entry) (i32.const 12)))
          (local.set $messages (i32.add (local.get $messages) (i32.const 8)))
          (br $next)))
      (call $ok (local.get $list) (local.get $count)))

    ;; ---- Results: a byte that is 1 for an error, and at offset 4 address and length. ----

    (func $ok (param $list i32) (param $count i32) (result i32)
      (i32.store8 (i32.const 512) (i32.const 0))
      (i32.store (i32.const 516) (local.get $list))
      (i32.store (i32.const 520) (local.get $count))
      (i32.const 512))
  )
  (core instance $function (instantiate $Function
    (with "memory" (instance $memory))))

  ;; What the function exports.
  (func (export "start") (param "args" (list string)) (result (result (error string)))
    (canon lift (core func $function "start")
      (memory $linear-memory) (realloc $realloc) (post-return $reset)))
  (func (export "handle")
    (param "messages" (list (list u8))) (result (result (list $outgoing) (error string)))
    (canon lift (core func $function "handle")
      (memory $linear-memory) (realloc $realloc) (post-return $reset))))
