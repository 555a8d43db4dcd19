# prose.pl [FILE...] - prints each place of the text that users read which holds a pattern to avoid. Status 1: there is one.
# The text: comments of include/, string literals of src/ and samples/, man pages, README, docs/. Sentences are compared, not lines.
use strict;
use warnings;

# name, pattern, what to write instead
my @patterns = (
    ['mend', qr/\bmend(?:s|ed|ing)?\b/i, 'fix, fixes'],
    ['is no', qr/(?<!there )(?<!There )\b(?:is|are|was|were|be) no (?!longer|more|less|later|smaller|larger)[a-z]/, 'is not a'],
    ['what-subject', qr/^What (?!if\b)[^?]*$/, 'the subject first: "Tensors without a device tag go to ...", not "What has no tag goes ..."'],
    ['rate', qr/\b(?:bytes?|lines?|[KMG]i?B|seconds?|ms|calls?|rows?) an? (?:tensor|file|step|rank|line|storage|piece|row|second|element|checkpoint)\b/,
     'per tensor, per file'],
    ['wanted', qr/\b(?:is|are) wanted\b/, 'is expected, is required, is missing'],
    ['be had', qr/\b(?:be|is|are|was|were) had\b/, 'be read, be allocated, be found'],
    ['goes along', qr/\bgo(?:es)? along\b/, 'is kept, is copied'],
    ['of which', qr/,\s(?:\w+ )?of which\b/, 'two sentences'],
    ['one that is', qr/\bone that (?:is|are|was|has|have)\b/i, 'name the thing'],
    ['passed over', qr/\b(?:pass(?:es|ed)?) (?:[a-z]+ )?over\b/, 'skipped'],
    ['one too many', qr/\bone too many\b/, 'unexpected argument'],
    ['no use', qr/\bof no use\b/, 'is not needed'],
    ['looked at', qr/\blooked at\b/, 'checked, read'],
    ['says so', qr/\b(?:says?|said) so\b/, 'name what is said and where'],
    ['chain', qr/;[^;]*;[^;]*;/, 'one fact a sentence: at most two semicolons'],
);

# Places that stay, with the reason.
my @kept = (
    ['man/ckpt-migrate.1', 'Print exactly one JSON document', 'the fields of a document'],
    ['src/cli/report/page.c', 'Content-Security-Policy', 'a rule of HTML'],
    ['man/ckpt-json.5', '', 'its sentences are lists of fields', 'chain'],
    ['include/ckpt/tensor.h', 'sparse_csr, _csc, _bsr, _bsc "compressed"', 'a list of layouts and the names of their parts'],
);

my %count;
my $bad = 0;

sub look {
    my ($file, $line, $text) = @_;
    $text =~ s/\s+/ /g;
    $text =~ s/^ | $//g;
    # A sentence ends with . : ? or ! before a blank and a capital letter.
    for my $sentence (split /(?<=[.:?!])\s+(?=["'(]?[A-Z])/, $text) {
        for my $p (@patterns) {
            my ($name, $re, $instead) = @$p;
            next unless $sentence =~ $re;
            next if $name eq 'what-subject' && length $sentence < 45 && $sentence !~ /\.$/;   # a heading
            # A list of statuses is a list.
            next if $name eq 'chain' && $sentence =~ /^CKPT_E_|CKPT_[A-Z_]+.*CKPT_[A-Z_]+/;
            next if grep { $file eq $_->[0] && index($sentence, $_->[1]) >= 0 && (!$_->[3] || $_->[3] eq $name) } @kept;
            my $shown = length $sentence > 160 ? substr($sentence, 0, 157) . '...' : $sentence;
            print "$file:$line: $name (write: $instead)\n    $shown\n";
            $count{$name}++;
            $bad++;
        }
    }
}

sub slurp {
    open my $f, '<', $_[0] or die "$_[0]: $!\n";
    local $/;
    return scalar <$f>;
}

sub line_of { my ($text, $at) = @_; return 1 + (substr($text, 0, $at) =~ tr/\n//); }

sub comments {
    my ($file) = @_;
    my $text = slurp($file);
    while ($text =~ m{/\*(.*?)\*/}gs) {
        my ($body, $line) = ($1, line_of($text, $-[0]));
        $body =~ s/^\s*\*//mg;
        # A list or an example begins anew.
        look($file, $line, $_) for split /\n\s*\n|\n(?=   \s*\S)/, $body;
    }
}

# Adjacent literals are one message; a macro between two (PRIu64) is a number.
sub strings {
    my ($file) = @_;
    my $text = slurp($file);
    $text =~ s{/\*.*?\*/}{ my $c = $&; $c =~ tr/\n/ /c; $c }gse;
    $text =~ s/^\s*#\s*include.*$//mg;
    while ($text =~ /("(?:[^"\\\n]|\\.)*"(?:\s*(?:PRI[a-zA-Z0-9]+\s*)?"(?:[^"\\\n]|\\.)*")*)/g) {
        my ($literal, $line) = ($1, line_of($text, $-[0]));
        $literal =~ s/"\s*PRI[a-zA-Z0-9]+\s*"/u/g;
        $literal =~ s/"\s*"//g;
        $literal =~ s/^"|"$//g;
        look($file, $line, $_) for split /\\n/, $literal;
    }
}

# A page's text: requests that set type are their words, others part paragraphs; examples are left out.
sub man {
    my ($file) = @_;
    my ($text, $line, $start, $example) = ('', 0, 1, 0);
    my $flush = sub { look($file, $start, $text) if $text =~ /\S/; $text = ''; };
    for (split /\n/, slurp($file)) {
        $line++;
        if (/^\.\s*(?:EX|nf)\b/) { $flush->(); $example = 1; next; }
        if (/^\.\s*(?:EE|fi)\b/) { $example = 0; next; }
        next if $example || /^[.']\\"/;
        if (/^\.(?:B|I|BR|BI|IR|RB|RI|IB)\s+(.*)/) {
            my $words = $1;
            $words =~ s/"//g;
            $start = $line if $text eq '';
            $text .= " $words";
            next;
        }
        if (/^[.']/) { $flush->(); next; }
        s/\\f[BIRP]|\\f\(..|\\&//g;
        s/\\-/-/g;
        s/\\\(aq/'/g;
        $start = $line if $text eq '';
        $text .= " $_";
    }
    $flush->();
}

# Markdown and README: paragraphs; sessions and code (four blanks, fences) are left out, a row of a table is a paragraph.
sub page {
    my ($file) = @_;
    my ($text, $line, $start, $fence) = ('', 0, 1, 0);
    my $flush = sub { look($file, $start, $text) if $text =~ /\S/; $text = ''; };
    for (split /\n/, slurp($file)) {
        $line++;
        if (/^\s*```/) { $flush->(); $fence = !$fence; next; }
        next if $fence;
        if (/^    / || /^\s*$/ || /^[-=]{3,}\s*$/) { $text = '' if /^[-=]/; $flush->(); next; }   # a line of dashes: a heading
        if (/^\|/) { $flush->(); look($file, $line, $_) for split /\|/; next; }
        $flush->() if /^(?:[-*]|\d+\.) /;
        $start = $line if $text eq '';
        $text .= " $_";
    }
    $flush->();
}

# A page's style sheet is no text.
my @files = @ARGV ? @ARGV : grep { $_ ne 'src/cli/report/style.c' } (
    glob('include/ckpt/*.h'), glob('src/*/*.c src/*/*/*.c src/*/*.h src/*/*/*.h'), glob('man/*.[1-9]'), 'README', glob('docs/*.md'));
die "no files\n" unless @files > 50 || @ARGV;
for my $file (@files) {
    if ($file =~ m{^src/|\.c$}) { strings($file); }
    elsif ($file =~ m{\.h$}) { comments($file); }
    elsif ($file =~ m{\.[1-9]$}) { man($file); }
    else { page($file); }
}
print scalar(@files), " files: ";
print $bad ? join(', ', map { "$_ $count{$_}" } sort keys %count) . "\n" : "no pattern to avoid\n";
exit($bad ? 1 : 0);
