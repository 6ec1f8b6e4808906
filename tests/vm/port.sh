#!/bb/busybox sh
# In the guest: takes the port of a device down or up again, as a pulled cable would.
#
#   guest-port rxe1 down|up
#
# A link that goes down forgets its neighbours, and soft-RoCE waits seconds for one that it does not
# know: they are put back.
set -e
nic="nic${1#rxe}"
kept="/run/neighbours.$nic"
case "$2" in
  down)
    /usr/bin/ip neigh show dev "$nic" nud permanent >"$kept"
    /usr/bin/ip link set "$nic" down
    ;;
  up)
    /usr/bin/ip link set "$nic" up
    while read -r address lladdr hardware_address rest; do
      [ "$lladdr" != lladdr ] || /usr/bin/ip neigh replace "$address" lladdr "$hardware_address" \
        dev "$nic" nud permanent
    done <"$kept"
    ;;
  *) echo "guest-port: '$2' is neither down nor up" >&2; exit 2 ;;
esac
