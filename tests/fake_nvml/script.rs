//! What the fake cards are and do, as the script says.

use super::passing::OK;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Default)]
pub struct Faults {
    /// Function, code, calls before the first that fails, calls that fail.
    fails: Vec<(String, c_int, u64, u64)>,
    slow: Vec<(String, u64)>,
}

#[derive(Default)]
pub struct Script {
    pub driver: String,
    pub cuda: c_int,
    pub init: c_int,
    /// Milliseconds for each call; none where time goes on by itself.
    pub tick: Option<u64>,
    pub topology: BTreeMap<(usize, usize), c_int>,
    pub faults: Faults,
    pub gpus: Vec<Arc<Gpu>>,
}

#[derive(Clone)]
pub struct Gpu {
    pub name: String,
    pub uuid: String,
    pub bus: String,
    pub vbios: String,
    pub serial: String,
    pub memory: (u64, u64),
    pub capability: (c_int, c_int),
    pub pcie_link: (u32, u32),
    pub ecc: c_int,
    /// Corrected and uncorrected errors of the memory at the first question, and how many more at each further one.
    pub ecc_errors: (u64, u64, u64),
    pub persistence: c_int,
    pub mig: u32,
    pub temperature: u32,
    /// Milliseconds after the script was written, and how hot it is from then on.
    pub cooled: Option<(u64, u32)>,
    pub utilization: (u32, u32),
    pub throttle: u64,
    pub sm_clock: u32,
    pub memory_clock: u32,
    supported: Vec<(u32, Vec<u32>)>,
    /// Milliwatts: least, most, default.
    pub limits: (u32, u32, u32),
    /// Id, bytes, and how many milliseconds after the script was written it is gone.
    pub processes: Vec<(u32, u64, Option<u64>)>,
    /// Millisecond and milliwatts.
    pub power: Vec<(i64, i64)>,
    pub energy_base: u64,
    pub energy_tick_ms: u64,
    pub energy_frozen_after: u64,
    pub pcie: Option<(u64, u64)>,
    /// The GPM counters in the order of the directive.
    pub gpm: [f64; 8],
    pub fields: BTreeMap<u32, (u32, u64)>,
    pub lost_after: u64,
    /// While that file begins with `1`, so many milliwatts are drawn.
    pub busy: Option<(String, i64)>,
    /// The sensor of power: milliseconds between its updates, of its window, and of its lag.
    pub sensor: Option<(i64, i64, i64)>,
    pub faults: Faults,
}

impl Gpu {
    fn new(name: &str, index: usize) -> Self {
        Self {
            name: name.into(),
            uuid: format!("GPU-{index:08}-0000-0000-0000-000000000000"),
            bus: format!("00000000:{index:02X}:00.0"),
            vbios: "96.00.CF.00.01".into(),
            serial: format!("165402300{index}"),
            memory: (150_754_820_096, 0),
            capability: (9, 0),
            pcie_link: (5, 16),
            ecc: 1,
            ecc_errors: (0, 0, 0),
            persistence: 1,
            mig: 0,
            temperature: 30,
            cooled: None,
            utilization: (0, 0),
            throttle: 0,
            sm_clock: 1980,
            memory_clock: 3201,
            supported: Vec::new(),
            limits: (200_000, 700_000, 700_000),
            processes: Vec::new(),
            power: vec![(0, 100_000)],
            energy_base: 1_000_000,
            energy_tick_ms: 1,
            energy_frozen_after: u64::MAX,
            pcie: None,
            gpm: [0.0; 8],
            fields: BTreeMap::new(),
            lost_after: u64::MAX,
            busy: None,
            sensor: None,
            faults: Faults::default(),
        }
    }

    /// The integral of the power in milliwatts times milliseconds; before time 0 it was as it is at 0.
    fn work(&self, until_ms: i64) -> i64 {
        let first = self.power[0].1;
        if until_ms <= 0 {
            return first * until_ms;
        }
        let ends = self.power.iter().skip(1).map(|step| step.0).chain([i64::MAX]);
        self.power.iter().zip(ends).map(|(&(from, mw), end)| mw * (end.min(until_ms) - from).max(0)).sum()
    }

    /// Takes note of whether it is busy from now on; whether that is news.
    pub fn is_news(&self, now: u64) -> Option<(i64, i64)> {
        let (file, busy) = self.busy.as_ref()?;
        let is_busy = std::fs::read(file).is_ok_and(|bytes| bytes.first() == Some(&b'1'));
        let draws = if is_busy { *busy } else { self.power[0].1 };
        (self.power[self.power.len() - 1].1 != draws).then_some((now as i64, draws))
    }

    /// What a sensor shows that looks at the last so many milliseconds of those that it has seen.
    fn seen(&self, now: u64, window: i64, (period, _, lag): (i64, i64, i64)) -> u32 {
        let update = now as i64 / period * period;
        let newest = update - lag;
        // No two updates are the same.
        let noise = update / period * 7919 % 997;
        ((self.work(newest) - self.work(newest - window)) / window + noise) as u32
    }

    pub fn power_now(&self, now: u64) -> u32 {
        if let Some(sensor) = self.sensor {
            return self.seen(now, sensor.1, sensor);
        }
        let step = self.power.iter().rev().find(|step| step.0 <= now as i64);
        step.unwrap_or(&self.power[0]).1 as u32
    }

    pub fn power_average(&self, now: u64) -> u32 {
        if let Some(sensor) = self.sensor {
            return self.seen(now, 1000, sensor);
        }
        ((self.work(now as i64) - self.work(now as i64 - 1000)) / 1000) as u32
    }

    /// The clocks that may be set: of the memory, and of graphics with each.
    pub fn supported(&self) -> Vec<(u32, Vec<u32>)> {
        if self.supported.is_empty() {
            return vec![(3201, (0..110).map(|step| 1980 - 15 * step).collect())];
        }
        self.supported.clone()
    }

    pub fn averages(&self) -> bool {
        self.capability > (8, 0)
    }

    pub fn energy(&self, now: u64) -> u64 {
        let until = (now.min(self.energy_frozen_after) / self.energy_tick_ms) * self.energy_tick_ms;
        self.energy_base + self.work(until as i64) as u64 / 1000
    }

    /// Whether it has GPM counters.
    pub fn counts(&self) -> bool {
        self.capability >= (9, 0)
    }

    /// A GPM metric; none of one that it does not have.
    pub fn counter(&self, id: u32) -> Option<f64> {
        const IDS: [u32; 8] = [2, 3, 5, 10, 20, 21, 61, 60];
        Some(self.gpm[IDS.iter().position(|known| *known == id)?])
    }

    /// The type and the bits of a field.
    pub fn field(&self, id: u32, now: u64) -> Option<(u32, u64)> {
        if let Some(&field) = self.fields.get(&id) {
            return Some(field);
        }
        match id {
            83 => Some((3, self.energy(now))),
            185 if self.averages() => Some((1, self.power_average(now).into())),
            186 => Some((1, self.power_now(now).into())),
            197 => self.pcie.map(|(sent, _)| (3, sent * now)),
            198 => self.pcie.map(|(_, received)| (3, received * now)),
            _ => None,
        }
    }

    fn directive(&mut self, word: &str, rest: &str) -> Option<()> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        match word {
            "uuid" => self.uuid = rest.into(),
            "bus" => self.bus = rest.into(),
            "vbios" => self.vbios = rest.into(),
            "serial" => self.serial = rest.into(),
            "memory" => self.memory = (number(&words, 0)?, words.get(1).map_or(Some(0), |used| used.parse().ok())?),
            "capability" => self.capability = (number(&words, 0)?, number(&words, 1)?),
            "pcie_link" => self.pcie_link = (number(&words, 0)?, number(&words, 1)?),
            "ecc_errors" => self.ecc_errors = (number(&words, 0)?, number(&words, 1)?, number(&words, 2)?),
            "ecc" => self.ecc = number(&words, 0)?,
            "persistence" => self.persistence = number(&words, 0)?,
            "mig" => self.mig = number(&words, 0)?,
            "cooled" => self.cooled = Some((number(&words, 0)?, number(&words, 1)?)),
            "temperature" => self.temperature = number(&words, 0)?,
            "utilization" => self.utilization = (number(&words, 0)?, number(&words, 1)?),
            "throttle" => self.throttle = number(&words, 0)?,
            "sm_clock" => self.sm_clock = number(&words, 0)?,
            "memory_clock" => self.memory_clock = number(&words, 0)?,
            "supported" => {
                let clocks: Option<Vec<u32>> = words.iter().map(|word| word.parse().ok()).collect();
                let (memory, graphics) = clocks.as_ref()?.split_first()?;
                self.supported.push((*memory, graphics.to_vec()));
            }
            "limits" => self.limits = (milli(words.first()?)?, milli(words.get(1)?)?, milli(words.get(2)?)?),
            "process" => {
                let bytes = if words.get(1) == Some(&"none") { u64::MAX } else { number(&words, 1)? };
                let gone = if words.len() > 2 { Some(number(&words, 2)?) } else { None };
                self.processes.push((number(&words, 0)?, bytes, gone));
            }
            "power" => {
                let step = |step: &str| {
                    let (from, watts) = step.trim().split_once(' ')?;
                    Some((from.parse().ok()?, milli(watts.trim())?.into()))
                };
                self.power = rest.split(';').map(step).collect::<Option<_>>()?;
            }
            "busy" => self.busy = Some((words.first()?.to_string(), milli(words.get(1)?)?.into())),
            "sensor" => self.sensor = Some((number(&words, 0)?, number(&words, 1)?, number(&words, 2)?)),
            "energy_base" => self.energy_base = number(&words, 0)?,
            "energy_tick_ms" => self.energy_tick_ms = number(&words, 0)?,
            "energy_frozen_after" => self.energy_frozen_after = number(&words, 0)?,
            "pcie" => self.pcie = Some((number(&words, 0)?, number(&words, 1)?)),
            "gpm" => {
                for (at, counter) in self.gpm.iter_mut().enumerate() {
                    *counter = number(&words, at)?;
                }
            }
            "field" => {
                let bits = match *words.get(1)? {
                    "double" => (0, number::<f64>(&words, 2)?.to_bits()),
                    "u32" => (1, number::<u32>(&words, 2)?.into()),
                    "ulong" => (2, number(&words, 2)?),
                    "u64" => (3, number(&words, 2)?),
                    "i64" => (4, number::<i64>(&words, 2)? as u64),
                    other => (other.parse().ok()?, number(&words, 2)?),
                };
                self.fields.insert(number(&words, 0)?, bits);
            }
            "lost_after" => self.lost_after = number(&words, 0)?,
            _ => return None,
        }
        Some(())
    }
}

fn number<T: std::str::FromStr>(words: &[&str], at: usize) -> Option<T> {
    words.get(at)?.parse().ok()
}

/// Watts as milliwatts.
fn milli(watts: &str) -> Option<u32> {
    Some((watts.parse::<f64>().ok()? * 1000.0).round() as u32)
}

impl Faults {
    fn directive(&mut self, word: &str, rest: &str) -> Option<()> {
        let words: Vec<&str> = rest.split_whitespace().filter(|word| *word != "calls").collect();
        let function = (*words.first()?).to_owned();
        if word == "slow" {
            self.slow.push((function, number(&words, 1)?));
            return Some(());
        }
        let (mut after, mut calls) = (0, u64::MAX);
        for pair in words.get(2..)?.chunks(2) {
            match pair[0] {
                "after" => after = number(pair, 1)?,
                "for" => calls = number(pair, 1)?,
                _ => return None,
            }
        }
        self.fails.push((function, number(&words, 1)?, after, calls));
        Some(())
    }

    /// What the call that follows so many others gives.
    pub fn code(&self, function: &str, before: u64) -> c_int {
        let hit = |(name, _, after, calls): &&(String, c_int, u64, u64)| {
            name == function && before >= *after && before - after < *calls
        };
        self.fails.iter().find(hit).map_or(OK, |fail| fail.1)
    }

    pub fn slowness(&self, function: &str) -> Duration {
        Duration::from_millis(self.slow.iter().find(|(name, _)| name == function).map_or(0, |slow| slow.1))
    }
}

impl Script {
    pub fn read(text: &str) -> Result<Self, String> {
        let mut script = Self { driver: "580.159.04".into(), cuda: 13000, ..Self::default() };
        let mut gpus: Vec<Gpu> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let rest = rest.trim();
            let understood = match (word, gpus.last_mut()) {
                ("", _) => Some(()),
                ("gpu", _) => {
                    gpus.push(Gpu::new(rest, gpus.len()));
                    Some(())
                }
                ("fail" | "slow", Some(gpu)) => gpu.faults.directive(word, rest),
                ("fail" | "slow", None) => script.faults.directive(word, rest),
                (_, Some(gpu)) => gpu.directive(word, rest).or_else(|| script.directive(word, rest)),
                (_, None) => script.directive(word, rest),
            };
            understood.ok_or_else(|| format!("line {} is not understood: {line}", at + 1))?;
        }
        script.gpus = gpus.into_iter().map(Arc::new).collect();
        Ok(script)
    }

    fn directive(&mut self, word: &str, rest: &str) -> Option<()> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        match (word, words.first().copied()?) {
            ("driver", version) => self.driver = version.into(),
            ("cuda", version) => self.cuda = version.parse().ok()?,
            ("init", code) => self.init = code.parse().ok()?,
            ("clock", "monotonic") => self.tick = None,
            ("clock", "call") => self.tick = Some(number(&words, 1)?),
            ("topology", a) => {
                const LEVELS: [&str; 6] = ["internal", "single", "multiple", "hostbridge", "node", "system"];
                let level = LEVELS.iter().position(|level| words.get(2) == Some(level))?;
                self.topology.insert((a.parse().ok()?, number(&words, 1)?), 10 * level as c_int);
            }
            _ => return None,
        }
        Some(())
    }
}
