#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    estafette_flow::guest_calls::run(input);
});
