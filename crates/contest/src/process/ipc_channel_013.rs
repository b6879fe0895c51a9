//! `ipc-channel` 0.13, as the benchmark has it that the race answers, with bincode 1 for what is typed.

use estafette_measure::Spec;
use estafette_measure::case::Pattern;
use estafette_measure::spec::Joins;

use super::ipc_channel::bytes_channel;

bytes_channel!(
    ipc_channel_013,
    IpcChannel013,
    Spec::new("process/ipc-channel-0.13")
        .version(env!("LOCKED_IPC_CHANNEL_0_13"))
        .stands_on("ipc_channel::ipc::bytes_channel, send and recv")
        .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
        .joins(Joins::Standard),
    io::Error::other
);
