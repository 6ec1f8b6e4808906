# A learning Ethernet switch: starts N guests, each with one end of a socket pair as its wire,
# passes frames between them until all have ended, and exits with the first status that is not 0.
#
#   perl switch.pl N GUEST-SCRIPT ARGUMENTS...
#
# guest.sh starts it for --nodes. perl, because every Debian has it.
use strict;
use warnings;
use Socket;
use POSIX qw(:sys_wait_h);

$^F = 1 << 20;    # the guests inherit their wire
$SIG{PIPE} = 'IGNORE';

my ($nodes, $script, @arguments) = @ARGV;
my (@wire, %node_of_process, %node_of_address);
my $status = 0;

sub start_node {
  my ($node) = @_;
  socketpair(my $mine, my $theirs, AF_UNIX, SOCK_SEQPACKET, 0) or die "socketpair: $!";
  setsockopt($_, SOL_SOCKET, SO_SNDBUF, pack('i', 4 << 20)) for $mine, $theirs;
  my $process = fork;
  die "fork: $!" unless defined $process;
  if (!$process) {
    close $_ for @wire, $mine;
    exec 'bash', $script, '--node', $node, '--wire', fileno($theirs), @arguments;
    die "exec: $!";
  }
  close $theirs;
  $mine->blocking(0);
  $wire[$node] = $mine;
  $node_of_process{$process} = $node;
}

sub reap_nodes {
  while ((my $process = waitpid(-1, WNOHANG)) > 0) {
    $status ||= $? & 127 ? 128 + ($? & 127) : $? >> 8;
    my $node = delete $node_of_process{$process};
    close $wire[$node];
    $wire[$node] = undef;
  }
}

# A frame that a guest cannot take at once is dropped, as on any Ethernet.
sub pass_frames {
  my ($node) = @_;
  for (1 .. 64) {
    my $length = sysread($wire[$node], my $frame, 65600);
    last unless $length;
    my ($target, $source) = (substr($frame, 0, 6), substr($frame, 6, 6));
    $node_of_address{$source} = $node;
    my @to = exists $node_of_address{$target} ? $node_of_address{$target}
      : grep { $_ != $node } 0 .. $nodes - 1;
    for (@to) { syswrite($wire[$_], $frame) if defined $wire[$_]; }
  }
}

start_node($_) for 0 .. $nodes - 1;
$SIG{TERM} = $SIG{INT} = sub { kill 'TERM', keys %node_of_process; };
while (%node_of_process) {
  reap_nodes();
  my @live = grep { defined $wire[$_] } 0 .. $nodes - 1;
  my $ready = '';
  vec($ready, fileno($wire[$_]), 1) = 1 for @live;
  next unless select($ready, undef, undef, 0.1) > 0;
  for (@live) { pass_frames($_) if vec($ready, fileno($wire[$_]), 1); }
}
exit $status;
