#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| estafette_flow::config::fuzzing::pipeline(input));
