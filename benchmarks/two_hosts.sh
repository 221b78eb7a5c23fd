#!/bin/sh
# Two hosts prepare a corpus, play a game, and lose each other:
#
#     sudo sh benchmarks/two_hosts.sh [python [posts.parquet]]
#
# The hosts are two network namespaces with addresses of their own, joined by a cable (veth). A game
# that torchrun plays over both is compared with that of one process; then the cable is cut in the
# middle of a game: both must end with one sentence within a minute, leave whole checkpoints only, and
# the run must go on to the same result. Where posts are named, the two hosts as a Ray cluster first
# prepare them to the bytes of one host, and refuse a folder that they do not share.
set -eu
python=${1:-python3} posts=${2:-}
folder=$(mktemp -d) rays=
export XDG_STATE_HOME="$folder/state" XDG_CACHE_HOME="$folder/cache" OMP_NUM_THREADS=1
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n') # the hosts of a cluster know each other by it
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN

clean() {
    for process in $rays; do kill "$process" 2>/dev/null || true; done
    sleep 1
    ip netns del fh-first 2>/dev/null || true
    ip netns del fh-second 2>/dev/null || true
    rm -rf "$folder" /tmp/fh-ray
}
trap clean EXIT INT TERM

ip netns add fh-first
ip netns add fh-second
ip link add fh-a netns fh-first type veth peer name fh-b netns fh-second
for host in first:a:1 second:b:2; do
    name=fh-${host%%:*} number=${host##*:} device=fh-$(echo "$host" | cut -d: -f2)
    ip -n "$name" link set lo up
    ip -n "$name" addr add "10.77.0.$number/24" dev "$device"
    ip -n "$name" link set "$device" up
done

# on HOST DEVICE ARGUMENTS...: torchrun's part of a command on one of the hosts
on() {
    host=$1 device=$2
    shift 2
    GLOO_SOCKET_IFNAME=$device ip netns exec "$host" "$python" -m torch.distributed.run \
        --nnodes 2 --node-rank "$([ "$host" = fh-first ] && echo 0 || echo 1)" \
        --nproc-per-node 1 --master-addr 10.77.0.1 --master-port 29500 -m firehose "$@"
}

# ray_on HOST ARGUMENTS...: a host of a Ray cluster; the second has its own /tmp/fh-ray, and not what is
# in the folder "unshared"
ray_on() {
    host=$1
    shift
    ip netns exec "$host" sh -c '
        mkdir -p /tmp/fh-ray
        case $0 in *second) mount -t tmpfs none /tmp/fh-ray && mount -t tmpfs none unshared ;; esac
        exec "$@"' "$host" "$python" -m ray.scripts.scripts start --block --num-cpus 1 \
        --disable-usage-stats "$@" >>"ray-$host.txt" 2>&1 &
    rays="$rays $!"
}

# prepared OUT ARGUMENTS...: prepare the posts by the cluster
prepared() {
    out=$1
    shift
    RAY_ADDRESS=10.77.0.1:6380 ip netns exec fh-first "$python" -m firehose prepare "$posts" \
        --vocab-size 1000 --out "$out" "$@"
}

cd "$folder"
mkdir unshared
if [ -n "$posts" ]; then
    ray_on fh-first --head --node-ip-address 10.77.0.1 --port 6380 --include-dashboard=false \
        --temp-dir /tmp/fh-ray
    first_ray=$!
    tries=0
    until grep -q 'To add another node' ray-fh-first.txt || [ $tries -gt 600 ]; do
        kill -0 $first_ray || { cat ray-fh-first.txt && exit 1; }
        sleep 1 && tries=$((tries + 1))
    done
    ray_on fh-second --address 10.77.0.1:6380 --node-ip-address 10.77.0.2
    tries=0
    until grep -q 'Ray runtime started' ray-fh-second.txt || [ $tries -gt 600 ]; do
        sleep 1 && tries=$((tries + 1))
    done
    prepared by-one --workers 0 >/dev/null
    prepared by-two --workers 2 --runner ray >/dev/null
    diff -r by-one by-two && echo "two hosts of Ray prepare the same bytes as one"
    prepared unshared/corpus --workers 2 --runner ray >/dev/null 2>refused.txt && exit 1
    grep '^Error: .* is not the same folder on 10.77.0.2 of the Ray cluster' refused.txt
    kill $rays && wait $rays || true
fi

$python -m firehose prepare --out corpus --set source.users=30 --set source.posts=2000 \
    --vocab-size 800 --workers 0 >/dev/null
game="play corpus --recipe demo --checkpoint-every 0"
$python -m firehose $game --out one >/dev/null

on fh-second fh-b $game --out two >second.txt 2>&1 &
on fh-first fh-a $game --out two >first.txt 2>&1
wait $!
cat >compare.py <<'END'
import json, sys

a, b = ([json.loads(line) for line in open(f"{run}/rounds.jsonl")] for run in sys.argv[1:])
assert len(a) == len(b), f"{len(a)} and {len(b)} rounds"
worst = max(abs(x["nats"] / y["nats"] - 1) for x, y in zip(a, b))
kept = sum(x["kept"] != y["kept"] for x, y in zip(a, b))
print(f"{' and '.join(sys.argv[1:])}: {len(a)} rounds, nats differ by {worst:.1e}, choices in {kept}")
sys.exit(worst > 1e-4 or kept > 0)
END
$python compare.py one two

on fh-second fh-b $game --out cut >second.txt 2>&1 &
second=$!
on fh-first fh-a $game --out cut >first.txt 2>&1 &
first=$!
until [ -d cut/checkpoints/state-000000004 ] || ! kill -0 $first 2>/dev/null; do sleep 0.1; done
ip -n fh-first link set fh-a down
begun=$(date +%s)
wait $first && echo "The first host did not notice." && exit 1
echo "the first host ended after $(($(date +%s) - begun)) s"
wait $second && echo "The second host did not notice." && exit 1
echo "the second host ended after $(($(date +%s) - begun)) s"
grep -h '^Error: ' first.txt second.txt
[ "$(grep -c '^Error: ' first.txt)" = 1 ] && [ "$(grep -c '^Error: ' second.txt)" = 1 ]
ls cut/checkpoints
[ ! -e cut/checkpoints/partial ]
$python -m firehose resume cut >/dev/null 2>&1
$python compare.py one cut
