# What `process/capnp-rpc` passes messages by.
@0xcdfa3c1f087f79e3;

interface Courier {
    # A round trip.
    ask @0 (data :Data) -> (data :Data);

    # One of many, one way. The library holds the sender back by a window of bytes.
    send @1 (data :Data) -> stream;

    # Returns when everything sent has been received.
    finish @2 ();
}
