//! Replacing a function's code while the pipeline runs.

use std::os::fd::AsFd;

use anyhow::{Context, Result};

use super::Supervisor;
use crate::control::Request;

impl Supervisor {
    /// Replaces a function's code. Returns how many instances were asked to take the new one.
    pub(super) fn reload(&mut self, name: &str) -> Result<usize> {
        let known =
            || self.pipeline.functions.iter().map(|function| function.name.as_str()).collect::<Vec<_>>().join(", ");
        let at = self.pipeline.functions.iter().position(|function| function.name == name);
        let at = at.with_context(|| format!("there is no function `{name}`; the pipeline has {}", known()))?;
        anyhow::ensure!(
            self.pipeline.functions[at].input.is_some() || self.pipeline.functions[at].stream.is_some(),
            "`{name}` receives nothing, so there is no moment between two batches; stop the pipeline and start it again"
        );
        self.code.reload(&self.pipeline, at)?;
        let mut asked = 0;
        for instance in self.instances.iter().filter(|instance| instance.function == at) {
            if let Some(host) = instance.host() {
                let request = Request::Reload { instance: instance.id, abi: self.code.abi(at) };
                if let Some(host) = self.hosts.get(&host) {
                    host.send(&request, &[self.code.file(at).as_fd()])?;
                    asked += 1;
                }
            }
        }
        Ok(asked)
    }
}
