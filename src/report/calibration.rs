//! Calibrated power sensors: a table as text, and the members of the JSON document.

use super::columns;
use super::number::significant;
use crate::analysis::{Sensor, Shape, Within};
use crate::record::{Table, Value};

/// Returns a table of sensors by name, then one line with the reason for each sensor without a calibration.
pub fn sensors_text(sensors: &[(&str, Result<Sensor, String>)]) -> String {
    let found: Vec<(&str, &Sensor)> =
        sensors.iter().filter_map(|(name, sensor)| Some((*name, sensor.as_ref().ok()?))).collect();
    let mut text = String::new();
    if !found.is_empty() {
        let heads = ["SENSOR", ">EVERY", ">SEES", ">LAG", ">A READING IS OLD", ">EXPLAINED", ">UPDATES", ">COUNTS IN"];
        text.push_str(&columns(&heads, found.into_iter().map(|(name, sensor)| row(name, sensor))));
    }
    for (name, sensor) in sensors {
        if let Err(reason) = sensor {
            text.push_str(&format!("{name}: unknown, because {reason}\n"));
        }
    }
    text
}

fn row(name: &str, sensor: &Sensor) -> Vec<String> {
    let window = within(sensor.window);
    let window = if sensor.shape == Shape::Boxcar { window } else { format!("{window} (filter)") };
    vec![
        name.to_owned(),
        within(sensor.period),
        window,
        within(sensor.lag),
        within(sensor.delay),
        format!("{:.1}%", sensor.explained * 100.0),
        sensor.updates.to_string(),
        sensor.quantum_j.map_or_else(|| "-".to_owned(), |joules| format!("{} mJ", significant(joules * 1e3))),
    ]
}

/// Formats a time in milliseconds; the width of its interval sets the number of digits.
fn within(time: Within) -> String {
    let (ms, half) = (time.seconds * 1e3, time.half_width * 1e3);
    let digits = match half {
        half if half < 0.1 => 2,
        half if half < 10.0 => 1,
        _ => 0,
    };
    format!("{ms:.digits$} ± {half:.digits$} ms")
}

/// Returns the JSON members: each calibrated sensor by name, and `unknown` with the reason of each other one.
pub fn sensors_value(sensors: &[(&str, Result<Sensor, String>)]) -> Table {
    let mut unknown = Table::new();
    let mut table = Table::new();
    for (name, sensor) in sensors {
        match sensor {
            Ok(sensor) => table.insert((*name).to_owned(), sensor.to_table().into()),
            Err(reason) => unknown.insert((*name).to_owned(), reason.as_str().into()),
        };
    }
    table.insert("unknown".to_owned(), Value::Table(unknown));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibrated_sensors_are_a_table_and_the_others_have_a_reason() {
        let of = |seconds: f64, half_width: f64| Within { seconds, half_width };
        let sensor = Sensor {
            period: of(0.1, 0.000_04),
            spread_s: 0.002,
            shape: Shape::Boxcar,
            window: of(0.0252, 0.0031),
            lag: of(0.0119, 0.0024),
            delay: of(0.0745, 0.0013),
            explained: 0.9871,
            updates: 318,
            quantum_j: None,
        };
        let counter = Sensor { shape: Shape::FirstOrder, window: of(0.43, 0.012), quantum_j: Some(0.001), ..sensor };
        let sensors = [
            ("power_instant", Ok(sensor)),
            ("power_average", Err("it changed 2 times in 33 s, and 20 are needed".to_owned())),
            ("energy", Ok(counter)),
        ];
        insta::assert_snapshot!(sensors_text(&sensors), @r"
        SENSOR                    EVERY                  SEES            LAG  A READING IS OLD  EXPLAINED  UPDATES  COUNTS IN
        power_instant  100.00 ± 0.04 ms         25.2 ± 3.1 ms  11.9 ± 2.4 ms     74.5 ± 1.3 ms      98.7%      318          -
        energy         100.00 ± 0.04 ms  430 ± 12 ms (filter)  11.9 ± 2.4 ms     74.5 ± 1.3 ms      98.7%      318       1 mJ
        power_average: unknown, because it changed 2 times in 33 s, and 20 are needed
        ");
        let value = sensors_value(&sensors);
        assert_eq!(value["unknown"].to_string(), "{power_average = it changed 2 times in 33 s, and 20 are needed}");
        assert_eq!(Sensor::of(value["energy"].as_table().unwrap()), Some(counter));
    }
}
