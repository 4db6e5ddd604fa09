//! Bytes as a line of a worker, and text as JSON: nothing panics, and an event that was understood is written as one that is.
#![no_main]

use ledger::wire::{from_json, parse_event, to_json_line, write_event};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(event) = parse_event(bytes, 7) {
        let mut line = Vec::new();
        write_event(&event, &mut line);
        let again = parse_event(line.trim_ascii_end(), 7).expect("what was written is understood");
        let mut other = Vec::new();
        write_event(&again, &mut other);
        assert_eq!(line, other);
    }
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(value) = from_json(text)
    {
        let _ = (value.digest(), to_json_line(&value));
    }
});
