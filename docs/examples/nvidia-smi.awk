# What `nvidia-smi --query-gpu=… --format=csv -l 1` wrote, as the samples that `ledger import telemetry --gpu` reads:
#
#     awk -v host="$(hostname)" -v zone="$(date +%:z)" -f docs/examples/nvidia-smi.awk smi.csv > gpu.csv
#
# nvidia-smi writes local times without their offset from UTC: `zone` is that of the machine when it wrote them.
# Takes timestamp and what there is of: serial, uuid or index; power.draw; temperature.gpu; utilization.gpu; utilization.memory.
function field(name,    text) {
    if (!(name in place)) return ""
    text = $(place[name])
    return text ~ /^[0-9.]/ ? text + 0 : ""
}
function text(name) { return name in place ? $(place[name]) : "" }

BEGIN { FS = ", *" }
{ sub(/\r$/, "") }
NR == 1 {
    for (i = 1; i <= NF; i++) {
        name = $i
        sub(/ *\[.*\]$/, "", name)
        place[name] = i
    }
    if (!("timestamp" in place)) {
        print "nvidia-smi.awk: the first line names no timestamp (use --format=csv, with its header)" > "/dev/stderr"
        exit 1
    }
    print "timestamp,hostname,gpuSerial,gpuUUID,powerDrawWatt,gpuTempC,gpuUtilPerc,gpuMemUtilPerc"
    next
}
NF > 1 {
    moment = text("timestamp")
    gsub("/", "-", moment)
    sub(" ", "T", moment)
    serial = text("serial")
    if (serial !~ /^[0-9]/) serial = text("index")
    print moment zone "," host "," serial "," text("uuid") "," field("power.draw") "," field("temperature.gpu") "," field("utilization.gpu") "," field("utilization.memory")
}
